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

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// badValue is one wrong element of an integer operand.
type badValue struct {
	name    string
	in      *attn.Tensor
	index   int
	value   int32
	arg     string // that the error names
	request int    // and its request, -1: the sums as a whole
	bad     []int  // requests whose rows become 0; nil: which rows are whose is not to be said
	lost    bool   // rows of bad requests have no place: they stay as they were
}

// anyRequest is where several are at fault and any may be found first.
const anyRequest = -2

// faulty is a call with what is needed to judge its rows.
type faulty struct {
	call     attn.Call
	check    *bool             // its CheckValues
	rows     func(b int) []int // of request b in out
	lse      func(b int) []int // elements of request b in lse
	out, sf  *attn.Tensor
	lseOf    *attn.Tensor
	requests int
}

// try makes the call with the bad value: checked before the launch, found by the kernel, and found where a recording of the good call is replayed.
func (f faulty) try(t *testing.T, rt *cudaops.Runtime, bad badValue) {
	outputs := []*attn.Tensor{f.out, f.sf, f.lseOf}
	run := func() error { return f.call.Run(rt.Backend()) }
	clear := func() {
		for _, x := range outputs {
			if x.Valid() {
				must(t, rt.Write(x.Ptr, bytes.Repeat([]byte{0xff}, x.Bytes())))
			}
		}
	}
	told := func(how string, err error) {
		t.Helper()
		request := fmt.Sprintf("request %d:", bad.request)
		if bad.request == anyRequest {
			request = "request "
		}
		if !errors.Is(err, ops.ErrArgument) || !strings.Contains(err.Error(), bad.arg) || !strings.Contains(err.Error(), request) {
			t.Errorf("%s: %v, want ErrArgument of %s, request %d", how, err, bad.arg, bad.request)
		}
	}
	clear()
	must(t, run(), rt.Sync())
	good := results(t, rt, outputs...)
	goodOut, goodLSE := read(t, rt, f.out), read(t, rt, f.lseOf)
	replay := recorded(t, rt, run)
	was := make([]byte, 4)
	at := bad.in.At(bad.index)
	must(t, rt.Read(was, at), rt.Write(at, int32s(bad.value)))

	clear()
	*f.check = true
	before := run()
	told("before the launch", before)
	*f.check = false
	for _, b := range results(t, rt, outputs...) {
		if b != 0xff {
			t.Fatal("something was written before the check")
		}
	}
	must(t, run())
	found := rt.Sync()
	told("by the kernel", found)
	if bad.bad != nil && bad.request >= 0 && before != nil && found != nil && before.Error() != found.Error() { // one fault: the same error
		t.Errorf("by the kernel: %v, before the launch: %v", found, before)
	}
	must(t, rt.Sync())
	out, lse := read(t, rt, f.out), read(t, rt, f.lseOf)
	row := f.out.Shape[1] * f.out.Shape[2] * f.out.DType.Size()
	for b := range f.requests {
		if bad.bad == nil {
			break
		}
		isBad := slices.Contains(bad.bad, b)
		want := func(x []byte, i, n int) []byte { return x[i*n : (i+1)*n] }
		for _, r := range f.rows(b) {
			expect := want(goodOut, r, row)
			switch {
			case isBad && bad.lost:
				expect = bytes.Repeat([]byte{0xff}, row)
			case isBad:
				expect = make([]byte, row)
			}
			if same := bytes.Equal(want(out, r, row), expect); !same && (isBad || !near(f.out.DType, want(out, r, row), expect)) {
				t.Errorf("request %d (bad: %v): row %d is wrong", b, isBad, r)
			}
			if f.sf.Valid() && isBad && slices.ContainsFunc(scalesOf(read(t, rt, f.sf), r, f.sf.Shape[1]), func(b byte) bool { return b != 0 }) {
				t.Errorf("request %d: scales of row %d are not 0", b, r)
			}
		}
		for _, e := range f.lse(b) {
			expect := want(goodLSE, e, 4)
			if isBad {
				expect = float32s(float32(math.Inf(-1)))
			}
			if same := bytes.Equal(want(lse, e, 4), expect); !same && (isBad || !near(attn.F32, want(lse, e, 4), expect)) {
				t.Errorf("request %d (bad: %v): lse %d is %v", b, isBad, e, decoded(attn.F32, lse[4*e:]))
			}
		}
	}
	direct := results(t, rt, outputs...)
	clear()
	must(t, replay())
	told("in a replay", rt.Sync())
	must(t, rt.Sync())
	if bad.bad != nil && !bytes.Equal(results(t, rt, outputs...), direct) {
		t.Error("the replay gives something else than the kernel alone")
	}
	for how, run := range map[string]func() error{"call": run, "replay": replay} {
		clear()
		must(t, rt.Write(at, was), run(), rt.Sync())
		if !bytes.Equal(results(t, rt, outputs...), good) {
			t.Errorf("the next good %s gives something else", how)
		}
	}
}

// near tells whether two rows differ by no more than sums in another order may: where keys are cut depends on the other requests too.
func near(dt attn.DType, got, want []byte) bool {
	if dt == attn.U8 { // nvfp4: a code now and then
		other := 0
		for i := range got {
			if got[i] != want[i] {
				other++
			}
		}
		return other <= 1+len(got)/16
	}
	steps := map[attn.DType]float64{attn.F32: 1e-5, attn.F16: 1e-3, attn.BF16: 8e-3, attn.E4M3: 0.125}
	for i := 0; i < len(got); i += dt.Size() {
		a, b := decoded(dt, got[i:]), decoded(dt, want[i:])
		if a != b && !(math.Abs(a-b) <= steps[dt]*max(math.Abs(a), math.Abs(b), 0.02)) {
			return false
		}
	}
	return true
}

// scalesOf are the block scales of a row, in the 128×4 swizzle.
func scalesOf(all []byte, m, columns int) (row []byte) {
	for k := range columns {
		row = append(row, all[(m/128*(columns/4)+k/4)*512+m%32*16+m%128/32*4+k%4])
	}
	return row
}

func upTo(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// TestBadDecode: every wrong length, sum and page on the device; who gets what: a bad request's rows are 0, the others' are right.
func TestBadDecode(t *testing.T) {
	rt := open(t, 0)
	for _, s := range shapes([]int{1, 1, 1}, []int{40, 17, 33}) {
		if s.cum {
			s.qLens = []int{1, 2, 1}
		}
		s.columns = 4 // 64 keys
		t.Run(s.String(), func(t *testing.T) {
			c := s.decode(t, rt)
			c.MaxSeqLen = 50
			rows := prefix(3, func(b int) int { return s.qLens[b] })
			f := faulty{call: c, check: &c.CheckValues, out: &c.Out, sf: &c.OutScale, lseOf: &c.LSE, requests: 3,
				rows: func(b int) []int { return upTo(rows[b], rows[b+1]) }, lse: func(b int) []int { return upTo(rows[b]*s.hq, rows[b+1]*s.hq) }}
			pages, one := int32(c.Key.Shape[0]), []int{1}
			bads := []badValue{
				{name: "negative", in: &c.SeqLens, index: 1, value: -1, arg: "seq_lens", request: 1, bad: one},
				{name: "lowest", in: &c.SeqLens, index: 1, value: math.MinInt32, arg: "seq_lens", request: 1, bad: one},
				{name: "over the table", in: &c.SeqLens, index: 1, value: 65, arg: "seq_lens", request: 1, bad: one},
				{name: "over max_seq_len", in: &c.SeqLens, index: 1, value: 51, arg: "seq_lens", request: 1, bad: one},
				{name: "page N", in: &c.BlockTables, index: 4, value: pages, arg: "block_tables", request: 1, bad: one},
				{name: "page -1", in: &c.BlockTables, index: 5, value: -1, arg: "block_tables", request: 1, bad: one},
				{name: "page 2^30", in: &c.BlockTables, index: 4, value: 1 << 30, arg: "block_tables", request: 1, bad: one},
			}
			if s.cum {
				c.MaxQLen = 4
				bads = append(bads,
					badValue{name: "falling", in: &c.CumSeqLensQ, index: 2, value: 0, arg: "cum_seq_lens_q", request: 1},
					badValue{name: "negative sum", in: &c.CumSeqLensQ, index: 2, value: -5, arg: "cum_seq_lens_q", request: anyRequest},
					badValue{name: "past the end", in: &c.CumSeqLensQ, index: 3, value: 5, arg: "cum_seq_lens_q", request: anyRequest, bad: []int{2}},
					badValue{name: "ends early", in: &c.CumSeqLensQ, index: 3, value: 3, arg: "cum_seq_lens_q", request: -1},
					badValue{name: "starts late", in: &c.CumSeqLensQ, index: 0, value: 1, arg: "cum_seq_lens_q", request: -1})
			}
			for _, bad := range bads {
				t.Run(bad.name, func(t *testing.T) { f.try(t, rt, bad) })
			}
			u := *c
			u.SeqLens.DType = attn.U32
			must(t, u.Infer())
			uf := f
			uf.call, uf.check, uf.out, uf.sf, uf.lseOf = &u, &u.CheckValues, &u.Out, &u.OutScale, &u.LSE
			for name, length := range map[string]int32{"uint32 2^31": math.MinInt32, "uint32 2^32-1": -1, "uint32 over the table": 65} {
				bad := badValue{in: &u.SeqLens, index: 1, value: length, arg: "seq_lens", request: 1, bad: one}
				t.Run(name, func(t *testing.T) { uf.try(t, rt, bad) })
			}
			if s.cum {
				t.Run("over max_q_len", func(t *testing.T) {
					c := s.decode(t, rt) // rows [0,1), [1,3), [3,4) become [0,1), [1,4), [4,4)
					f := f
					f.call, f.check, f.out, f.sf, f.lseOf = c, &c.CheckValues, &c.Out, &c.OutScale, &c.LSE
					f.rows = func(b int) []int { return [][]int{{0}, {1, 2, 3}, nil}[b] }
					f.lse = func(b int) []int { return upTo([]int{0, s.hq, 0}[b], []int{s.hq, 4 * s.hq, 0}[b]) }
					f.try(t, rt, badValue{in: &c.CumSeqLensQ, index: 2, value: 4, arg: "max_q_len", request: 1, bad: []int{1}})
				})
			}
		})
	}
}

// TestBadPrefill: the same in prefill, paged and ragged, with and without element offsets.
func TestBadPrefill(t *testing.T) {
	rt := open(t, 0)
	for _, s := range prefillShapes([]int{3, 4, 2}, []int{40, 17, 33}) {
		s.columns = 64 / max(s.page, 1)
		t.Run(s.String(), func(t *testing.T) {
			rows := prefix(3, func(b int) int { return s.qLens[b] })
			prepare := func(c *attn.PrefillCall) faulty {
				return faulty{call: c, check: &c.CheckValues, out: &c.Out, sf: new(attn.Tensor), lseOf: &c.LSE, requests: 3,
					rows: func(b int) []int { return upTo(rows[b], rows[b+1]) },
					lse:  func(b int) []int { return upTo(b*c.MaxQLen*s.hq, (b+1)*c.MaxQLen*s.hq) }}
			}
			c := s.prefill(t, rt)
			one, last := []int{1}, []int{2}
			const q, kv = "actual_seq_lens_q", "actual_seq_lens_kv"
			bads := []badValue{
				{name: "negative rows", in: &c.QLens, index: 2, value: -1, arg: q, request: 2, bad: last},
				{name: "over max_token_per_sequence", in: &c.QLens, index: 2, value: 5, arg: q, request: 2, bad: last},
				{name: "more rows than q", in: &c.QLens, index: 2, value: 4, arg: q, request: 2, bad: last},
				{name: "negative keys", in: &c.KVLens, index: 1, value: -1, arg: kv, request: 1},
				{name: "over max_sequence_kv", in: &c.KVLens, index: 1, value: 41, arg: kv, request: 1},
			}
			if s.page > 0 {
				bads[3].bad, bads[4].bad = one, one // ragged, the keys behind would be others'
				columns := c.BlockTables.Shape[1]
				pages := int32(c.Key.Shape[0])
				bads = append(bads,
					badValue{name: "page N", in: &c.BlockTables, index: columns, value: pages, arg: "block_tables", request: 1, bad: one},
					badValue{name: "page -1", in: &c.BlockTables, index: columns + 1, value: -1, arg: "block_tables", request: 1, bad: one},
					badValue{name: "page 2^30", in: &c.BlockTables, index: columns, value: 1 << 30, arg: "block_tables", request: 1, bad: one})
			} else {
				bads = append(bads, badValue{name: "more keys than k_cache", in: &c.KVLens, index: 2, value: 34, arg: kv, request: 2, bad: last})
			}
			for _, bad := range bads {
				t.Run(bad.name, func(t *testing.T) { prepare(c).try(t, rt, bad) })
			}
			if s.page > 0 {
				t.Run("over the table", func(t *testing.T) {
					c := s.prefill(t, rt)
					c.MaxKVLen = 1000
					prepare(c).try(t, rt, badValue{in: &c.KVLens, index: 1, value: 65, arg: kv, request: 1, bad: one})
				})
			}

			s.offsets = true
			o := s.prefill(t, rt)
			f := prepare(o)
			f.lse = func(b int) []int { return upTo(rows[b]*s.hq, rows[b+1]*s.hq) }
			offsets := map[string]*attn.Tensor{"batch_offsets_q": &o.OffsetsQ, "batch_offsets_o": &o.OffsetsO, "batch_offsets_stats": &o.OffsetsStats}
			if s.page == 0 {
				offsets["batch_offsets_k"], offsets["batch_offsets_v"] = &o.OffsetsK, &o.OffsetsV
			}
			t.Run("over max_token_per_sequence, by offsets", func(t *testing.T) {
				f.try(t, rt, badValue{in: &o.QLens, index: 1, value: 5, arg: q, request: 1, bad: one})
			})
			for arg, in := range offsets {
				for _, value := range []int32{-1, math.MinInt32, math.MaxInt32} {
					t.Run(fmt.Sprintf("%s/%d", arg, value), func(t *testing.T) {
						f.try(t, rt, badValue{in: in, index: 1, value: value, arg: arg, request: 1, bad: one, lost: arg == "batch_offsets_o"})
					})
				}
			}
		})
	}
}
