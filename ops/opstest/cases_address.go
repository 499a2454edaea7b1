package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// addressCases put data where element offsets need more than 31 or 32 bits. They ask for much address space and touch little.
func addressCases() []Case {
	var out []Case
	add := func(op, name, why string, b body) {
		out = append(out, Case{Name: op + "/offsets/" + name, Why: why, Op: op, List: Corner, body: b})
	}
	// 16384 elements a page: page 131072 begins at element 2^31, page 262144 at 2^32.
	decode := func(f form, firstPage int) decodeSpec {
		return uniform([]int{5}, 1, 16, 16, 8, 128).with(func(s *decodeSpec) {
			s.form, s.firstPage, s.sparse, s.noExtraColumns = f, firstPage, true, true
		})
	}
	add("decode", "page=2^31", "page·stride in 32 bits wraps to a mapped address", decode(pairHND, 1<<17))
	add("decode", "page=2^31/nhd", "the same over an NHD cache", decode(pairNHD, 1<<17))
	add("decode", "page=2^31/stacked", "page 65536 of an interleaved cache", decode(stackedHND, 1<<16))
	add("decode", "page=2^32", "unsigned 32 bits wrap too", decode(pairHND, 1<<18))
	add("decode", "page_stride=2^31", "a page stride that needs 32 bits by itself", decode(padded, 1<<17))
	add("prefill", "page=2^31", "the same in prefill", uniformPrefill([]int{3}, []int{5}, 16, 16, 8, 128).with(func(s *prefillSpec) {
		s.firstPage, s.sparse = 1<<17, true
	}))
	add("prefill", "page=2^32", "the same in prefill", uniformPrefill([]int{3}, []int{5}, 16, 16, 8, 128).with(func(s *prefillSpec) {
		s.firstPage, s.sparse = 1<<18, true
	}))
	rag := uniformPrefill([]int{2, 1}, []int{3, 2}, 0, 4, 2, 64).with(func(s *prefillSpec) { s.sparse = true })
	add("prefill", "rows=2^31", "token stride times row passes 2^31", rag.with(func(s *prefillSpec) { s.qGap, s.kvGap = 1<<30+8, 1<<29+8 }))
	add("prefill", "rows=2^32/int64", "element offsets in int64", rag.with(func(s *prefillSpec) {
		s.qGap, s.kvGap, s.offsets = 1<<31+8, 1<<30+8, attn.I64
	}))
	ap := appendSpec{page: 16, hkv: 8, dk: 128, dv: 128, cacheDT: attn.F16, columns: 1, sparse: true,
		requests: []int{0, 0, 0}, positions: []int{4, 15, 0}}
	add("append_kv", "page=2^31", "appends far into the pool", ap.with(func(s *appendSpec) { s.firstPage = 1 << 17 }))
	add("append_kv", "page=2^32", "appends far into the pool", ap.with(func(s *appendSpec) { s.firstPage = 1 << 18 }))
	add("append_kv", "page=2^31/stacked", "page 65536 of an interleaved cache", ap.with(func(s *appendSpec) { s.firstPage, s.form = 1<<16, stackedNHD }))

	neg := newPrefill([]int{2, 3}, []int{4, 5}, 0, 4, 2, 64).with(func(s *prefillSpec) { s.offsets = attn.I32 })
	neg.bad = &badValue{arg: "batch_offsets_q", index: 1, value: math.MinInt32, want: refusal{kind: attn.ErrArgument, args: []string{"batch_offsets_q"}, request: 1}}
	add("prefill", "int32_wrapped", "an offset that wrapped in int32 is refused", neg)
	return out
}
