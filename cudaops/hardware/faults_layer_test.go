//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// TestBadAppend: a row with a bad position, request or page goes nowhere, its query becomes 0, the others are where they belong; so too in a replay.
func TestBadAppend(t *testing.T) {
	const page, hkv, hq, d, columns, pages = 16, 2, 4, 64, 3, 6
	rt := open(t, 0)
	number := func(i int) float64 { return float64(i%37)/8 - 2 }
	for _, dt := range []attn.DType{attn.BF16, attn.E4M3} {
		for _, ranges := range []bool{false, true} {
			for _, rope := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/ranges=%v/rope=%v", dt, ranges, rope), func(t *testing.T) {
					c := attn.NewAppendCall()
					c.Key, c.Value = device(t, rt, attn.BF16, encode(attn.BF16, 4*hkv*d, number), 4, hkv, d), device(t, rt, attn.BF16, encode(attn.BF16, 4*hkv*d, number), 4, hkv, d)
					c.KeyCache, c.ValueCache = poisoned(t, rt, dt, pages, hkv, page, d), poisoned(t, rt, dt, pages, hkv, page, d)
					c.BlockTables = device(t, rt, attn.I32, int32s(5, 1, 3, 0, 2, 4), 2, columns)
					if ranges {
						c.CumSeqLens, c.StartPositions = device(t, rt, attn.I32, int32s(0, 2, 4), 3), device(t, rt, attn.I32, int32s(19, 5), 2)
					} else {
						c.Positions, c.Requests = device(t, rt, attn.I32, int32s(19, 20, 5, 6), 4), device(t, rt, attn.I32, int32s(0, 0, 1, 1), 4)
					}
					if rope {
						c.RoPEConfig = attn.RoPEConfig{Base: 10000}
						c.Query = device(t, rt, attn.BF16, encode(attn.BF16, 4*hq*d, number), 4, hq, d)
					}
					must(t, c.Infer())
					if rope {
						c.QueryOut = poisoned(t, rt, attn.BF16, 4, hq, d)
					}
					outputs := []*attn.Tensor{&c.KeyCache, &c.ValueCache, &c.QueryOut}
					afresh := func(call func() error) func() error {
						return func() error {
							for _, x := range outputs {
								if x.Valid() {
									must(t, rt.Write(x.Ptr, bytes.Repeat([]byte{0xff}, x.Bytes())))
								}
							}
							return call()
						}
					}
					call := func() error { return rt.Backend().Append(&c) }
					run := afresh(call)
					must(t, run(), rt.Sync())
					replay := afresh(recorded(t, rt, call))
					good := results(t, rt, outputs...)
					// without is good where the rows, which lie in page 1 from slot 3 on, went nowhere.
					without := func(rows ...int) []byte {
						want := bytes.Clone(good)
						cache := pages * hkv * page * d * dt.Size()
						for _, row := range rows {
							for i := range 2 * hkv { // K and V
								at := i/hkv*cache + ((1*hkv+i%hkv)*page+3+row)*d*dt.Size()
								copy(want[at:], bytes.Repeat([]byte{0xff}, d*dt.Size()))
							}
							if rope {
								copy(want[2*cache+row*hq*d*2:], make([]byte, hq*d*2))
							}
						}
						return want
					}
					type bad struct {
						name  string
						in    *attn.Tensor
						index int
						value int32
						told  string // what the error says
						rows  []int
					}
					all := []bad{
						{"page N", &c.BlockTables, 1, pages, "block_tables", []int{0, 1}}, {"page -1", &c.BlockTables, 1, -1, "block_tables", []int{0, 1}},
						{"page 2^30", &c.BlockTables, 1, 1 << 30, "block_tables", []int{0, 1}},
					}
					if ranges {
						all = append(all, bad{"past the table", &c.StartPositions, 0, page*columns - 1, "start_positions", nil},
							bad{"farther", &c.StartPositions, 0, math.MaxInt32, "start_positions", []int{0, 1}},
							bad{"negative", &c.StartPositions, 0, -2, "start_positions", []int{0, 1}},
							bad{"falling", &c.CumSeqLens, 1, -1, "cum_seq_lens", nil}, bad{"ends early", &c.CumSeqLens, 2, 3, "cum_seq_lens", nil})
					} else {
						all = append(all, bad{"negative", &c.Positions, 1, -2, "positions", []int{1}}, bad{"lowest", &c.Positions, 1, math.MinInt32, "positions", []int{1}},
							bad{"past the table", &c.Positions, 1, page * columns, "positions", []int{1}}, bad{"farther", &c.Positions, 1, math.MaxInt32, "positions", []int{1}},
							bad{"request B", &c.Requests, 1, 2, "requests", []int{1}}, bad{"request -1", &c.Requests, 1, -1, "requests", []int{1}})
					}
					for _, b := range all {
						was := make([]byte, 4)
						at := b.in.At(b.index)
						must(t, rt.Read(was, at), rt.Write(at, int32s(b.value)))
						told := func(how string, err error) {
							if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), b.told) {
								t.Errorf("%s, %s: %v, want ErrArgument of %s", b.name, how, err, b.told)
							}
						}
						c.CheckValues = true
						told("before the launch", run())
						c.CheckValues = false
						if slices.ContainsFunc(results(t, rt, outputs...), func(x byte) bool { return x != 0xff }) {
							t.Errorf("%s: something was written before the check", b.name)
						}
						for how, run := range map[string]func() error{"by the kernel": run, "in a replay": replay} {
							must(t, run())
							told(how, rt.Sync())
							must(t, rt.Sync())
							if got := results(t, rt, outputs...); b.rows != nil && !bytes.Equal(got, without(b.rows...)) {
								t.Errorf("%s, %s: rows %v are somewhere, or others are not in their places", b.name, how, b.rows)
							}
						}
						must(t, rt.Write(at, was))
						for how, run := range map[string]func() error{"call": run, "replay": replay} {
							must(t, run(), rt.Sync())
							if !bytes.Equal(results(t, rt, outputs...), good) {
								t.Errorf("%s: the next good %s gives something else", b.name, how)
							}
						}
					}
				})
			}
		}
	}
}

// TestBadAppendOfNothing: without rows, sums that promise some are told by the next wait, and nothing is written.
func TestBadAppendOfNothing(t *testing.T) {
	rt := open(t, 0)
	c := attn.NewAppendCall()
	c.Key, c.Value = device(t, rt, attn.BF16, nil, 0, 2, 64), device(t, rt, attn.BF16, nil, 0, 2, 64)
	c.KeyCache, c.ValueCache = poisoned(t, rt, attn.BF16, 3, 2, 16, 64), poisoned(t, rt, attn.BF16, 3, 2, 16, 64)
	c.BlockTables = device(t, rt, attn.I32, int32s(0, 1), 2, 1)
	c.CumSeqLens, c.StartPositions = device(t, rt, attn.I32, int32s(0, 2, 4), 3), device(t, rt, attn.I32, int32s(0, 0), 2)
	must(t, c.Infer(), rt.Backend().Append(&c))
	if err := rt.Sync(); !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "cum_seq_lens") {
		t.Errorf("%v, want ErrArgument of cum_seq_lens", err)
	}
	if slices.ContainsFunc(results(t, rt, &c.KeyCache, &c.ValueCache), func(x byte) bool { return x != 0xff }) {
		t.Error("something was written")
	}
	must(t, rt.Write(c.CumSeqLens.Ptr, int32s(0, 0, 0)), rt.Backend().Append(&c), rt.Sync())
}

// TestBadPosition: RoPE at a position below -1 gives a row of 0, the others are right, and the next wait tells, once; so too in a replay.
func TestBadPosition(t *testing.T) {
	rt := open(t, 0)
	const row = 2 * 64 * 2
	c := &attn.RoPECall{X: device(t, rt, attn.BF16, encode(attn.BF16, 3*2*64, func(i int) float64 { return float64(i%9) - 4 }), 3, 2, 64),
		Positions: device(t, rt, attn.I32, int32s(7, 8, 9), 3), RoPEConfig: attn.RoPEConfig{Base: 10000}, Out: poisoned(t, rt, attn.BF16, 3, 2, 64)}
	call := func() error { return rt.Backend().RoPE(c) }
	must(t, c.Infer(), call())
	good := read(t, rt, &c.Out)
	replay := recorded(t, rt, call)
	must(t, rt.Write(c.Positions.At(1), int32s(-2)))
	for how, run := range map[string]func() error{"call": call, "replay": replay} {
		must(t, rt.Write(c.Out.Ptr, bytes.Repeat([]byte{0xff}, 3*row)), run())
		if err := rt.Sync(); !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "positions") || !strings.Contains(err.Error(), "row 1: -2") {
			t.Errorf("%s: %v, want ErrArgument of positions, row 1", how, err)
		}
		must(t, rt.Sync())
		if !bytes.Equal(read(t, rt, &c.Out), slices.Concat(good[:row], make([]byte, row), good[2*row:])) {
			t.Errorf("%s: other rows are wrong, or the bad position's is not 0", how)
		}
	}
}

// TestBadIDs: a bad id gets a row of 0 and the others are right, and the next wait tells, once, in a replay too; with CheckValues nothing is written.
func TestBadIDs(t *testing.T) {
	rt := open(t, 0)
	table := encode(attn.BF16, 5*64, func(i int) float64 { return float64(i%7) - 3 })
	c := &attn.EmbeddingCall{IDs: device(t, rt, attn.I32, int32s(4, 5, 0), 3), Weight: device(t, rt, attn.BF16, table, 5, 64), Out: poisoned(t, rt, attn.BF16, 3, 64)}
	must(t, c.Infer())
	told := func(err error) {
		t.Helper()
		if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), "ids") || !strings.Contains(err.Error(), "row 1: 5") {
			t.Errorf("%v, want ErrArgument of ids, row 1", err)
		}
	}
	c.CheckValues = true
	told(rt.Backend().Embedding(c))
	must(t, rt.Sync())
	if !bytes.Equal(read(t, rt, &c.Out), bytes.Repeat([]byte{0xff}, 3*128)) {
		t.Error("something was written")
	}
	c.CheckValues = false
	call := func() error { return rt.Backend().Embedding(c) }
	for _, run := range []func() error{call, recorded(t, rt, call)} {
		must(t, rt.Write(c.Out.Ptr, bytes.Repeat([]byte{0xff}, 3*128)), run())
		told(rt.Sync())
		if !bytes.Equal(read(t, rt, &c.Out), slices.Concat(table[4*128:], make([]byte, 128), table[:128])) {
			t.Error("other rows are wrong, or the bad id's is not 0")
		}
		must(t, rt.Sync())
	}
}
