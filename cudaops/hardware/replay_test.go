//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// TestReplay: a decode recorded at one length gives at any other, 0 and the longest among them, bit for bit what a direct call gives;
// requests that pad a batch have no keys and no pages, and their rows are 0 with LSE -inf.
func TestReplay(t *testing.T) {
	rt := open(t, 0)
	for _, s := range shapes([]int{2, 2, 2, 2}, []int{40, 17, 33, 100}) {
		if s.cum {
			s.qLens = []int{2, 1, 3, 2}
		}
		s.columns = 40
		longest := s.columns * s.page
		t.Run(s.String(), func(t *testing.T) {
			c := s.decode(t, rt)
			outputs := []*attn.Tensor{&c.Out, &c.OutScale, &c.LSE}
			must(t, rt.Backend().Decode(c), rt.Sync())
			rec, err := rt.Record(func() error { return rt.Backend().Decode(c) })
			must(t, err)
			table := read(t, rt, &c.BlockTables)
			for _, x := range []struct{ lens, sums []int }{
				{[]int{1, 2, 3, 4}, []int{0, 2, 3, 6, 8}}, {[]int{0, 0, 0, 0}, []int{0, 3, 3, 5, 8}}, {[]int{longest, longest, longest, longest}, []int{0, 3, 6, 8, 8}},
				{[]int{0, longest, 0, 16}, []int{0, 0, 3, 5, 8}}, {[]int{40, 17, 33, 100}, []int{0, 2, 3, 6, 8}},
			} {
				lens, sums := x.lens, x.sums
				if s.cum {
					must(t, rt.Write(c.CumSeqLensQ.Ptr, packed(sums)))
				} else {
					sums = []int{0, 2, 4, 6, 8}
				}
				padded := bytes.Clone(table)
				for b, n := range lens {
					if n == 0 { // -1 everywhere
						copy(padded[4*b*s.columns:4*(b+1)*s.columns], bytes.Repeat([]byte{0xff}, 4*s.columns))
					}
				}
				must(t, rt.Write(c.SeqLens.Ptr, packed(lens)), rt.Write(c.BlockTables.Ptr, padded))
				clear := func() {
					for _, x := range outputs {
						if x.Valid() {
							must(t, rt.Write(x.Ptr, bytes.Repeat([]byte{0xff}, x.Bytes())))
						}
					}
				}
				clear()
				must(t, rt.Backend().Decode(c))
				direct := results(t, rt, outputs...)
				clear()
				must(t, rec.Run())
				if !bytes.Equal(results(t, rt, outputs...), direct) {
					t.Errorf("lengths %v: the replay gives something else", lens)
				}
				out, lse := read(t, rt, &c.Out), read(t, rt, &c.LSE)
				row := len(out) / sums[4]
				for b, n := range lens {
					if n > 0 {
						continue
					}
					for r := sums[b]; r < sums[b+1]; r++ {
						if !bytes.Equal(out[r*row:(r+1)*row], make([]byte, row)) {
							t.Errorf("lengths %v: row %d of no keys is not 0", lens, r)
						}
						for h := range s.hq {
							if x := decoded(attn.F32, lse[4*(r*s.hq+h):]); !math.IsInf(x, -1) {
								t.Errorf("lengths %v: lse of row %d is %v", lens, r, x)
							}
						}
					}
				}
			}

			// Two bad requests: a replay finds them as a direct call does, and the next one knows nothing of them.
			set := func(lens ...int) { must(t, rt.Write(c.SeqLens.Ptr, packed(lens)), rt.Write(c.BlockTables.Ptr, table)) }
			again := func(run func() error, bad bool) []byte {
				t.Helper()
				for _, x := range outputs {
					if x.Valid() {
						must(t, rt.Write(x.Ptr, bytes.Repeat([]byte{0xff}, x.Bytes())))
					}
				}
				must(t, run())
				if err := rt.Sync(); bad != errors.Is(err, ops.ErrArgument) || bad && !strings.Contains(err.Error(), "seq_lens") {
					t.Errorf("bad: %v, Sync: %v", bad, err)
				}
				return results(t, rt, outputs...)
			}
			direct := func() error { return rt.Backend().Decode(c) }
			set(40, longest+1, 33, -1)
			if !bytes.Equal(again(rec.Run, true), again(direct, true)) {
				t.Error("bad lengths: the replay gives something else")
			}
			set(40, 17, 33, 100)
			if !bytes.Equal(again(rec.Run, false), again(direct, false)) {
				t.Error("after bad lengths: the replay gives something else")
			}
			must(t, rec.Close())
		})
	}
}

// TestReplayPrefill: a prompt recorded at one set of lengths serves others that fit: fewer rows leave the rest of out 0.
func TestReplayPrefill(t *testing.T) {
	rt := open(t, 0)
	for _, s := range prefillShapes([]int{30, 20, 14}, []int{40, 57, 33}) {
		s.columns = 128 / max(s.page, 1)
		t.Run(s.String(), func(t *testing.T) {
			c := s.prefill(t, rt)
			c.MaxQLen, c.MaxKVLen = 64, 128
			c.LSE = poisoned(t, rt, attn.F32, 3, 64, s.hq)
			must(t, c.Infer(), rt.Backend().Prefill(c), rt.Sync())
			rec, err := rt.Record(func() error { return rt.Backend().Prefill(c) })
			must(t, err)
			for _, lens := range [][2][3]int32{{{30, 20, 14}, {40, 57, 33}}, {{1, 0, 1}, {1, 5, 9}}, {{0, 0, 0}, {0, 0, 0}}, {{64, 0, 0}, {64, 0, 0}}, {{0, 0, 64}, {0, 1, 128}}} {
				if s.page == 0 && lens[1][2] == 128 {
					lens[1][2] = 127 // keys there are 130, and one is the second request's
				}
				must(t, rt.Write(c.QLens.Ptr, int32s(lens[0][:]...)), rt.Write(c.KVLens.Ptr, int32s(lens[1][:]...)))
				again := func(run func() error) []byte {
					must(t, rt.Write(c.Out.Ptr, bytes.Repeat([]byte{0xff}, c.Out.Bytes())), run(), rt.Sync())
					return results(t, rt, &c.Out, &c.LSE)
				}
				direct := again(func() error { return rt.Backend().Prefill(c) })
				if !bytes.Equal(again(rec.Run), direct) {
					t.Errorf("lengths %v: the replay gives something else", lens)
				}
				rows := int(lens[0][0] + lens[0][1] + lens[0][2])
				n := c.Out.Bytes() / c.Out.Shape[0]
				if rest := direct[rows*n : c.Out.Bytes()]; !bytes.Equal(rest, make([]byte, len(rest))) {
					t.Errorf("lengths %v: rows past the last request are not 0", lens)
				}
				for i, lse := 0, direct[c.Out.Bytes():]; i < 3*64*s.hq; i++ {
					b, row := i/(64*s.hq), i/s.hq%64
					if bits := binary.LittleEndian.Uint32(lse[4*i:]); int32(row) >= lens[0][b] && bits != math.Float32bits(float32(math.Inf(-1))) {
						t.Fatalf("lengths %v: lse of request %d row %d is %#x", lens, b, row, bits)
					}
				}
			}
			must(t, rec.Close())
		})
	}
}
