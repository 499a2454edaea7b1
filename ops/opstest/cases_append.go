package opstest

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// appendCases write into caches. Every byte that no row names must stay.
func appendCases() []Case {
	var out []Case
	add := func(list List, name, why string, b body) {
		out = append(out, Case{Name: "append_kv/" + name, Why: why, Op: "append_kv", List: list, body: b})
	}
	base := appendSpec{page: 4, hkv: 2, dk: 64, dv: 64, cacheDT: attn.F16, columns: 4,
		requests: []int{0, 1, 1, 0, 2, 1}, positions: []int{0, 3, 4, 15, 7, 12}}
	for _, dt := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.E4M3} {
		for _, row := range []attn.DType{attn.F32, attn.F16, attn.BF16} {
			add(Correctness, fmt.Sprintf("dtypes/cache=%v/rows=%v", dt, row), "rows are stored as the nearest values of the cache's dtype", base.with(func(s *appendSpec) {
				s.cacheDT, s.rowDT = dt, row
			}))
		}
	}
	add(Correctness, "dtypes/cache=float8_e4m3/rows=float8_e4m3", "rows of the cache's dtype are stored as they are", base.with(func(s *appendSpec) { s.cacheDT = attn.E4M3 }))
	add(Correctness, "e4m3_scale", "an e4m3 cache stores sat(x/scale), K and V by their own scales", base.with(func(s *appendSpec) {
		s.cacheDT, s.rowDT, s.kScale, s.vScale = attn.E4M3, attn.BF16, 0.5, 4
	}))
	add(Correctness, "e4m3_scale/rows=float8_e4m3", "rows in e4m3 are divided like any others", base.with(func(s *appendSpec) {
		s.cacheDT, s.kScale, s.vScale = attn.E4M3, 0.5, 4
	}))
	add(Correctness, "e4m3_scale/odd", "scales that are no powers of two", base.with(func(s *appendSpec) {
		s.cacheDT, s.rowDT, s.kScale, s.vScale = attn.E4M3, attn.F32, 0.37, 1.9
	}))
	add(Correctness, "cum_seq_lens", "rows of one request after another from their start positions, one without rows", base.with(func(s *appendSpec) {
		s.requests, s.positions = nil, nil
		s.starts, s.counts = []int{3, 0, 9}, []int{6, 0, 7}
	}))
	for f := pairHND; f <= stackedNHD; f++ {
		add(Corner, "layouts/"+f.String(), "every form of the cache", base.with(func(s *appendSpec) { s.form = f }))
	}
	add(Corner, "layouts/padded", "K and V with strides of their own", base.with(func(s *appendSpec) { s.form = padded }))
	add(Corner, "dims=192-128", "key and value dims that differ", base.with(func(s *appendSpec) { s.dk, s.dv, s.page = 192, 128, 16 }))
	add(Corner, "rows_strided", "k and v are slices of a fused QKV row", base.with(func(s *appendSpec) { s.rowGap = 72 }))
	add(Corner, "skipped", "position -1 skips the row, whatever its request says", base.with(func(s *appendSpec) {
		s.positions = []int{-1, 3, -1, 15, -1, 12}
	}))
	add(Corner, "skipped/all", "nothing but skipped rows", base.with(func(s *appendSpec) {
		s.requests, s.positions = []int{0, 0}, []int{-1, -1}
	}))
	add(Corner, "rows=0", "no row at all", base.with(func(s *appendSpec) {
		s.requests, s.positions, s.starts, s.counts = nil, nil, []int{2, 0}, []int{0, 0}
	}))
	add(Corner, "saturate", "e4m3 saturates at 448, infinities too; NaN stays NaN", base.with(func(s *appendSpec) {
		s.cacheDT, s.rowDT = attn.E4M3, attn.F32
		s.fill = func(_, _, d int) float64 {
			return []float64{448, 449, -1e30, math.Inf(1), math.Inf(-1), math.NaN(), 464, 0x1p-9, 0x1p-10, 0x1.8p-10, -0x1p-11, 0}[d%12]
		}
	}))
	add(Corner, "rounding", "ties go to the even value, in every narrow dtype", base.with(func(s *appendSpec) {
		s.cacheDT, s.rowDT = attn.BF16, attn.F32
		s.fill = func(_, _, d int) float64 {
			return float64(1+d%3) + []float64{0x1p-8, 0x1.8p-7, 0x1.00002p-8, 0x1.ffffep-9}[d%4]
		}
	}))
	add(Corner, "rounding/float16", "subnormals and overflow of float16", base.with(func(s *appendSpec) {
		s.cacheDT, s.rowDT = attn.F16, attn.F32
		s.fill = func(_, _, d int) float64 {
			return []float64{0x1p-24, 0x1p-25, 0x1.8p-25, 65519, 65520, -65536, 1 + 0x1p-11, 1 + 0x1.8p-10, 0x1.ffcp-15, 0x1.ffep-15}[d%10]
		}
	}))
	out = append(out, appendRoPECases(base)...)
	refuse := func(name string, s appendSpec, arg string, index, value int, args ...string) {
		s.bad = &badValue{arg: arg, index: index, value: value, want: refusal{kind: attn.ErrArgument, args: args, request: -1}}
		add(Corner, "refuse/"+name, "a bad value is an ErrArgument that names the argument, and nothing is written", s)
	}
	refuse("position=-2", base, "positions", 5, -2, "positions")
	refuse("position_over_table", base, "positions", 5, 16, "positions")
	refuse("request=-1", base, "requests", 5, -1, "requests")
	refuse("request=batch", base, "requests", 5, 3, "requests")
	refuse("table=-1", base, "block_tables", 1*7+3, -1, "block_tables") // row stride 7: 4 columns of a wider table
	refuse("table=pages", base, "block_tables", 1*7+3, 14, "block_tables")
	cum := base.with(func(s *appendSpec) {
		s.requests, s.positions = nil, nil
		s.starts, s.counts = []int{3, 0, 9}, []int{6, 2, 7}
	})
	turned := base.with(func(s *appendSpec) { s.rope, s.qHeads = attn.RoPEConfig{Base: 1e4}, 6 })
	refuse("rope/position=-2", turned, "positions", 5, -2, "positions")
	refuse("rope/table=pages", turned, "block_tables", 1*7+3, 14, "block_tables")
	refuse("cum_falls", cum, "cum_seq_lens", 2, 5, "cum_seq_lens")
	refuse("cum_starts_at_1", cum, "cum_seq_lens", 0, 1, "cum_seq_lens")
	refuse("cum_over_rows", cum, "cum_seq_lens", 3, 16, "cum_seq_lens")
	refuse("start=-2", cum, "start_positions", 1, -2, "start_positions")
	refuse("start_over_table", cum, "start_positions", 2, 10, "start_positions")
	return out
}

// appendRoPECases turn keys, and queries along with them.
func appendRoPECases(base appendSpec) []Case {
	var out []Case
	add := func(list List, name, why string, change func(*appendSpec)) {
		s := base.with(func(s *appendSpec) { s.rope, s.qHeads = attn.RoPEConfig{Base: 1e4}, 6 })
		out = append(out, Case{Name: "append_kv/rope/" + name, Why: why, Op: "append_kv", List: list, body: s.with(change)})
	}
	for _, p := range []attn.Pairing{attn.HalfSplit, attn.Adjacent} {
		tag := "/" + p.String()
		for _, cache := range []attn.DType{attn.F32, attn.F16, attn.BF16, attn.E4M3} {
			for _, row := range floatDTypes {
				add(Correctness, fmt.Sprintf("cache=%v/rows=%v", cache, row)+tag, "keys and queries turn, values don't; one rounding, to the cache's dtype", func(s *appendSpec) {
					s.rope.Pairing, s.cacheDT, s.rowDT = p, cache, row
				})
			}
		}
		add(Correctness, "e4m3_scale"+tag, "sat(turned/scale)", func(s *appendSpec) {
			s.rope.Pairing, s.cacheDT, s.rowDT, s.kScale, s.vScale = p, attn.E4M3, attn.BF16, 0.37, 1.9
		})
		add(Correctness, "rotary_dim=32"+tag, "elements past the rotary dim are stored as they are", func(s *appendSpec) {
			s.rope.Pairing, s.rope.RotaryDim, s.dk, s.dv = p, 32, 80, 64
		})
		add(Correctness, "factors"+tag, "each frequency over its own factor", func(s *appendSpec) { s.rope.Pairing, s.factors = p, true })
		add(Correctness, "llama3"+tag, "Llama 3's scaling", func(s *appendSpec) {
			s.rope = attn.RoPEConfig{Pairing: p, Base: 5e5, Scaling: attn.RoPEScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 64}}
			s.dk, s.dv = 128, 128
		})
		add(Correctness, "cum_seq_lens"+tag, "positions count on from each request's start", func(s *appendSpec) {
			s.requests, s.positions, s.rope.Pairing = nil, nil, p
			s.starts, s.counts = []int{3, 0, 9}, []int{6, 0, 7}
		})
		add(Corner, "skipped"+tag, "the query of a skipped row is copied", func(s *appendSpec) {
			s.rope.Pairing, s.positions = p, []int{-1, 3, -1, 15, -1, 12}
		})
		add(Corner, "rows_strided"+tag, "q, k and v are slices of a fused QKV row", func(s *appendSpec) { s.rope.Pairing, s.rowGap = p, 72 })
		add(Corner, "position=131071"+tag, "angles of 131071 radians", func(s *appendSpec) {
			s.rope.Pairing, s.rope.Base, s.cacheDT = p, 5e5, attn.F32
			s.page, s.columns, s.hkv = 1<<16, 2, 1
			s.requests, s.positions = []int{0, 0, 0}, []int{131071, 131070, 100003}
			s.dk, s.dv = 16, 16
		})
	}
	for f := pairHND; f <= stackedNHD; f++ {
		add(Corner, "layouts/"+f.String(), "every form of the cache", func(s *appendSpec) { s.form = f })
	}
	add(Corner, "layouts/padded", "K and V with strides of their own", func(s *appendSpec) { s.form = padded })
	add(Corner, "keys_alone", "no query", func(s *appendSpec) { s.qHeads = 0 })
	add(Corner, "heads=1-21", "heads of q, k and v that end amid a group of eight", func(s *appendSpec) { s.hkv, s.qHeads = 1, 21 })
	add(Corner, "rotary_dim=2", "one pair", func(s *appendSpec) { s.rope.RotaryDim, s.dk, s.dv = 2, 8, 8 })
	add(Corner, "rows=0", "no row at all", func(s *appendSpec) {
		s.requests, s.positions, s.starts, s.counts = nil, nil, []int{2, 0}, []int{0, 0}
	})
	return out
}
