package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// prefillCases are ordinary prefill calls.
func prefillCases() []Case {
	var out []Case
	add := func(name, why string, s prefillSpec) {
		out = append(out, Case{Name: "prefill/" + name, Why: why, Op: "prefill", List: Correctness, body: s})
	}
	add("two_keys/paged", "the softmax of two chosen logits; natural log in the LSE", twoKeysPrefill(1, 0, 16))
	add("two_keys/ragged", "the same over packed keys", twoKeysPrefill(1, 0, 0))
	for _, page := range []int{0, 1, 4, 8, 16, 64, 100} {
		add(fmt.Sprintf("random/page=%d", page), "page sizes; 0 is ragged", newPrefill([]int{37, 5, 64}, []int{70, 5, 64}, page, 4, 2, 64))
	}
	for _, causal := range []bool{false, true} {
		add(fmt.Sprintf("random/causal=%v/long", causal), "several blocks of rows and keys", newPrefill([]int{130, 70}, []int{300, 129}, 16, 8, 2, 64).with(func(s *prefillSpec) { s.causal = causal }))
		add(fmt.Sprintf("random/causal=%v/ragged/dims=192-128", causal), "DeepSeek's head dims", newPrefill([]int{37, 64, 1}, []int{87, 64, 9}, 0, 8, 4, 192).with(func(s *prefillSpec) {
			s.dvo, s.causal = 128, causal
		}))
	}
	add("random/chunk", "a chunk of a long prompt: few rows, many keys before them", newPrefill([]int{40, 1}, []int{5000, 3000}, 16, 4, 2, 64))
	add("random/paged/dims=192-128", "different head dims over pages", newPrefill([]int{37, 1}, []int{87, 9}, 16, 4, 2, 192).with(func(s *prefillSpec) { s.dvo = 128 }))
	add("random/dims=64-256", "a value dim above the key dim", newPrefill([]int{7, 1}, []int{17, 9}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.dvo = 256 }))
	for _, d := range []int{8, 40, 72, 96, 128, 256, 512} {
		add(fmt.Sprintf("random/d=%d", d), "head dims", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, d))
	}
	for _, g := range [][2]int{{9, 3}, {5, 1}, {12, 2}, {28, 4}, {7, 7}, {64, 4}} {
		s := uniformPrefill([]int{5, 3}, []int{21, 3}, 16, g[0], g[1], 64)
		add(fmt.Sprintf("uniform/heads=%d-%d", g[0], g[1]), "any group size, not only powers of two", s)
	}
	for _, name := range []string{"auto", "cudnn", "cubin"} {
		add("random/backend="+name, "a backend's name changes no number", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, 128).with(func(s *prefillSpec) { s.backend = name }))
	}
	add("random/out_given", "a caller's out is filled", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.given = true }))
	add("random/no_lse", "no LSE is wanted", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.noLSE = true }))
	add("random/lens=[B,1,1,1]", "lengths in cuDNN's shape", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.lens4 = true }))
	add("random/scale=-0.3", "any finite scale", newPrefill([]int{17, 5}, []int{37, 5}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.scale = -0.3 }))
	for _, t := range PrefillDTypes() {
		for _, page := range []int{0, 16} {
			add(fmt.Sprintf("dtypes/in=%v/out=%v/page=%d", t[0], t[2], page), "every accepted combination computes",
				newPrefill([]int{17, 0, 33}, []int{37, 5, 33}, page, 8, 2, 64).with(func(s *prefillSpec) {
					s.in, s.out = t[0], t[2]
					if s.in == attn.E4M3 {
						s.qs, s.ks, s.vs = 0.8, 1.25, 0.5
					}
				}))
		}
	}
	return append(out, inF32(out)...)
}

// prefillCornerCases are the places where prefill kernels go wrong.
func prefillCornerCases() []Case {
	var out []Case
	add := func(name, why string, b body) {
		out = append(out, Case{Name: "prefill/" + name, Why: why, Op: "prefill", List: Corner, body: b})
	}
	for _, page := range []int{0, 4, 16} { // ragged, pages too short for bulk copies, pages long enough
		tag := fmt.Sprintf("/page=%d", page)
		add("causal"+tag, "bottom-right, anchored at each request's own lengths: 1.5 2.0 | 0.0 0.5 1.0",
			uniformPrefill([]int{2, 3}, []int{5, 3}, page, 4, 2, 64).with(func(s *prefillSpec) { s.maxKV, s.maxQ = 64, 9 }))
		add("full"+tag, "without the mask every row sees every key",
			uniformPrefill([]int{2, 3}, []int{5, 3}, page, 4, 2, 64).with(func(s *prefillSpec) {
				s.causal = false
				s.rule = s.uniformRule()
			}))
		add("more_rows_than_keys"+tag, "L_b > S_b: strictly bottom-right, the first rows see nothing", uniformPrefill([]int{7, 3, 20}, []int{3, 5, 1}, page, 4, 2, 64))
		add("empty/3,0,2"+tag, "a request without rows and keys", uniformPrefill([]int{3, 0, 2}, []int{3, 0, 2}, page, 4, 2, 64))
		add("empty/0,2"+tag, "keys without rows", uniformPrefill([]int{0, 2}, []int{5, 2}, page, 4, 2, 64))
		add("empty/no_keys"+tag, "rows without keys: out 0, LSE -inf", uniformPrefill([]int{3, 2}, []int{0, 2}, page, 4, 2, 64))
		add("empty/no_keys/full"+tag, "the same without the mask", uniformPrefill([]int{3, 2}, []int{0, 2}, page, 4, 2, 64).with(func(s *prefillSpec) {
			s.causal = false
			s.rule = s.uniformRule()
		}))
		add("empty/batch=0"+tag, "no request at all", newPrefill(nil, nil, page, 4, 2, 64))
		add("rows_past_end"+tag, "rows of q past the last request, NaN, come out as 0", uniformPrefill([]int{2, 3}, []int{5, 3}, page, 4, 2, 64).with(func(s *prefillSpec) { s.extraRows = 5 }))
		add("rows_past_end/no_lse"+tag, "the same where no LSE is wanted", newPrefill([]int{2, 3}, []int{5, 3}, page, 4, 2, 64).with(func(s *prefillSpec) { s.extraRows, s.noLSE = 5, true }))
		add("rows_past_end/all"+tag, "nothing but such rows", newPrefill([]int{0}, []int{3}, page, 4, 2, 64).with(func(s *prefillSpec) { s.extraRows = 3 }))
		for _, check := range []bool{false, true} {
			add(fmt.Sprintf("empty/unread/check=%v%s", check, tag), "a request without rows has keys, and neither a table nor offsets that anybody looks at",
				newPrefill([]int{0, 2, 0}, []int{33, 5, 2}, page, 4, 2, 64).with(func(s *prefillSpec) {
					s.checkVals, s.offsets, s.stats = check, attn.I64, true
					args := []string{"batch_offsets_q", "batch_offsets_o", "batch_offsets_stats"}
					if page > 0 {
						args = append(args, "block_tables")
					} else {
						args = append(args, "batch_offsets_k", "batch_offsets_v")
					}
					for _, arg := range args {
						s.set = append(s.set, badValue{arg: arg, index: 0, value: -1})
					}
				}))
		}
		add("lse_padding"+tag, "elements of the LSE that no row has are -inf", newPrefill([]int{2, 9, 0}, []int{5, 9, 4}, page, 4, 2, 64).with(func(s *prefillSpec) { s.maxQ = 17 }))
		add("stats_offsets"+tag, "the LSE packed by element offsets, the rest -inf", newPrefill([]int{2, 9, 0, 4}, []int{5, 9, 4, 8}, page, 4, 2, 64).with(func(s *prefillSpec) { s.stats = true }))
		apart := newPrefill([]int{2, 9, 0, 4}, []int{5, 9, 4, 8}, page, 4, 2, 192).with(func(s *prefillSpec) {
			s.offsets, s.gap, s.qGap, s.dvo = attn.I32, 2, 24, 128
			if page == 0 {
				s.kvGap, s.extraKV = 16, 3
			}
		})
		for _, dt := range []attn.DType{attn.I32, attn.I64} {
			for _, total := range []bool{false, true} {
				add(fmt.Sprintf("batch_offsets/%v/total=%v%s", dt, total, tag), "element offsets of each tensor's own strides, gaps between requests untouched",
					apart.with(func(s *prefillSpec) { s.offsets, s.total = dt, total }))
			}
		}
		add("batch_offsets/rows_past_end"+tag, "rows past the last request are 0 there too", apart.with(func(s *prefillSpec) { s.extraRows = 3 }))
		add("q_strided"+tag, "q is a slice of a fused QKV row", sameBits{
			{"packed", newPrefill([]int{21, 4}, []int{33, 16}, page, 16, 4, 128)},
			{"row stride", newPrefill([]int{21, 4}, []int{33, 16}, page, 16, 4, 128).with(func(s *prefillSpec) { s.qGap = 8 * 128 })},
		})
		add("hidden_nan"+tag, "NaN keys that only the last rows see leave the others alone", prefillNaN(newPrefill([]int{20, 9}, []int{40, 9}, page, 4, 2, 64), func(b, t, _, _ int) bool { return b == 0 && t >= 38 }))
		for _, causal := range []bool{true, false} {
			for _, scale := range []float64{0.125, 0} {
				add(fmt.Sprintf("neg_inf/causal=%v/scale=%v%s", causal, scale, tag), "a row all of whose scores are -Inf is NaN, and so is 0 times one; among others such a key has no weight",
					newPrefill([]int{20, 9, 3}, []int{40, 9, 0}, page, 4, 2, 64).with(func(s *prefillSpec) {
						n := negInf(decodeSpec{}, func(b, t int) bool { return t < 38 && (b > 0 || causal) })
						s.causal, s.scale, s.fillQ, s.fillK = causal, scale, n.fillQ, n.fillK
					}))
			}
		}
		for _, dt := range []attn.DType{attn.F16, attn.F32} {
			add(fmt.Sprintf("far_scores/%v%s", dt, tag), "scores of -299,520 a few units apart: what is left of a softmax that takes a rounded maximum off rounded products",
				newPrefill([]int{20, 70}, []int{40, 300}, page, 4, 2, 64).with(func(s *prefillSpec) { s.in, s.scale, s.fillQ, s.fillK = dt, 1.25, farQuery, far }))
		}
		for _, dt := range []attn.DType{attn.F16, attn.BF16} {
			add(fmt.Sprintf("huge_scores/%v%s", dt, tag), "scores of 10⁹: their products with the scale round to whole hundreds",
				newPrefill([]int{20, 70}, []int{40, 300}, page, 4, 2, 64).with(func(s *prefillSpec) { s.in, s.fillQ, s.fillK = dt, hugeQuery, huge }))
		}
		add("tail"+tag, "NaN after the last key, in the page or between the requests, at ends of all kinds", newPrefill([]int{1, 5, 33, 64, 65}, []int{33, 70, 33, 128, 129}, page, 4, 2, 64))
		add("e4m3_saturates"+tag, "an e4m3 output saturates at 448", newPrefill([]int{5, 3}, []int{9, 3}, page, 4, 2, 64).with(func(s *prefillSpec) {
			s.in, s.qs, s.ks, s.vs = attn.E4M3, 1, 1, 2000
		}))
		add("nan_scale"+tag, "a NaN scale on the device makes every row NaN that sees a key", newPrefill([]int{5, 3}, []int{9, 3}, page, 4, 2, 64).with(func(s *prefillSpec) {
			s.in, s.qs, s.ks, s.vs = attn.E4M3, 1, math.NaN(), 1
		}))
	}
	add("ragged_spare", "rows of K and V after the last request, strides of their own", newPrefill([]int{21, 4}, []int{33, 16}, 0, 4, 2, 64).with(func(s *prefillSpec) {
		s.extraKV, s.kvGap = 7, 24
	}))
	add("layouts", "one logical cache in every form: equal bits", prefillLayouts())
	add("table_slice", "the table is a slice of a wider one", sameBits{
		{"packed", newPrefill([]int{21, 4}, []int{70, 33}, 16, 4, 2, 64)},
		{"row stride", newPrefill([]int{21, 4}, []int{70, 33}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.tableGap = 5 })},
		{"max_sequence_kv", newPrefill([]int{21, 4}, []int{70, 33}, 16, 4, 2, 64).with(func(s *prefillSpec) { s.maxKV = 4096 })},
	})
	return out
}

func prefillLayouts() sameBits {
	base := newPrefill([]int{21, 40, 1}, []int{21, 70, 1}, 16, 32, 16, 64).with(func(s *prefillSpec) { s.fillK, s.fillV = noise, noise })
	var out sameBits
	for _, f := range []form{pairHND, pairNHD, stackedHND, stackedNHD, padded, sharedHND, sharedNHD} {
		out = append(out, namedSpec{f.String(), base.with(func(s *prefillSpec) { s.form = f })})
	}
	return out
}

func prefillNaN(s prefillSpec, where func(b, t, h, d int) bool) prefillSpec {
	n := decodeNaN(decodeSpec{}, where)
	s.fillK, s.fillV = n.fillK, n.fillV
	return s
}

// prefillErrorCases are values that a backend must refuse before it writes anything.
func prefillErrorCases() []Case {
	var out []Case
	add := func(name string, s prefillSpec, arg string, index, value, request int, args ...string) {
		s.bad = &badValue{arg: arg, index: index, value: value, want: refusal{kind: attn.ErrArgument, args: args, request: request}}
		out = append(out, Case{Name: "prefill/refuse/" + name, Op: "prefill", List: Corner, body: s,
			Why: "a bad value is an ErrArgument that names argument and request, and nothing is written"})
	}
	for _, page := range []int{0, 16} {
		tag := fmt.Sprintf("/page=%d", page)
		base := newPrefill([]int{7, 5, 3}, []int{17, 5, 33}, page, 4, 2, 64)
		wide := base.with(func(s *prefillSpec) { s.maxQ, s.maxKV = 1<<20, 1<<20; s.noLSE = true })
		q, kv := "actual_seq_lens_q", "actual_seq_lens_kv"
		add("q_len=-1"+tag, base, q, 1, -1, 1, q)
		add("q_len_over_max"+tag, base.with(func(s *prefillSpec) { s.extraRows = 9 }), q, 2, 8, 2, q, "max_token_per_sequence")
		add("q_lens_over_rows"+tag, wide, q, 2, 4, -1, q, "q")
		add("kv_len=-1"+tag, base, kv, 1, -1, 1, kv)
		add("kv_len=min"+tag, base, kv, 0, math.MinInt32, 0, kv)
		add("kv_len_over_max"+tag, base.with(func(s *prefillSpec) { s.extraKV = 9 }), kv, 2, 34, 2, kv, "max_sequence_kv")
		off := base.with(func(s *prefillSpec) { s.offsets = attn.I64 })
		add("q_lens_over_rows/offsets"+tag, off, q, 1, 6, 2, q, "q")
		add("offset_q=-1"+tag, off, "batch_offsets_q", 1, -1, 1, "batch_offsets_q")
		add("offset_q_past_end"+tag, off, "batch_offsets_q", 2, 12*4*64+1, 2, "batch_offsets_q")
		add("offset_o=-1"+tag, off, "batch_offsets_o", 1, -1, 1, "batch_offsets_o")
		add("offset_o_past_end"+tag, off, "batch_offsets_o", 0, 1<<40, 0, "batch_offsets_o")
		stats := base.with(func(s *prefillSpec) { s.stats = true })
		add("offset_stats=-1"+tag, stats, "batch_offsets_stats", 1, -1, 1, "batch_offsets_stats")
		add("offset_stats_past_end"+tag, stats, "batch_offsets_stats", 1, 3*7*4-5*4+1, 1, "batch_offsets_stats")
		if page == 0 {
			add("kv_lens_over_rows"+tag, wide, kv, 2, 34, -1, kv, "k_cache")
			add("offset_k=-1"+tag, off, "batch_offsets_k", 1, -1, 1, "batch_offsets_k")
			add("offset_k_past_end"+tag, off, "batch_offsets_k", 1, 50*2*64+1, 1, "batch_offsets_k")
			add("offset_v=-1"+tag, off, "batch_offsets_v", 1, -1, 1, "batch_offsets_v")
			add("offset_v_past_end"+tag, off, "batch_offsets_v", 2, 22*2*64+1, 2, "batch_offsets_v")
			continue
		}
		add("kv_len_over_table"+tag, wide, kv, 1, 81, 1, kv)
		add("table=-1"+tag, base, "block_tables", 2*5+2, -1, 2, "block_tables")
		add("table=pages"+tag, base, "block_tables", 1, 9, 0, "block_tables")
	}
	return out
}
