package opstest

import (
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// nvfp4Cases are decode calls with nvfp4 outputs, with values that quantise exactly so that every byte can be told.
func nvfp4Cases() []Case {
	var out []Case
	add := func(name, why string, s decodeSpec) {
		out = append(out, Case{Name: "decode/nvfp4/" + name, Why: why, Op: "decode", List: Corner, body: s})
	}
	// Queries of 0 and five requests of one key each: the output is the value itself.
	base := newDecode([]int{1, 1, 1, 1, 1}, 1, 16, 2, 2, 128).with(func(s *decodeSpec) {
		s.q, s.kv, s.out, s.osfScale = attn.E4M3, attn.E4M3, attn.U8, 1
		s.fillQ = func(_, _, _ int) float64 { return 0 }
		s.fillK = uniformK
		s.fillV = func(_, _, _, _ int) float64 { return 3 }
	})
	rows := func(start, rows int, given bool) func(*decodeSpec) {
		return func(s *decodeSpec) { s.startRow, s.scaleRows, s.given = start, rows, given }
	}
	add("threes", "3 everywhere: codes 0x77, scales 0x30", base)
	add("threes/given", "into a caller's pair", base.with(rows(0, 128, true)))
	add("start_row=130", "the scales of token t go to row 130+t of a 256-row tensor, other rows stay", base.with(rows(130, 256, true)))
	add("start_row=123", "rows that end a tile", base.with(rows(123, 128, false)))
	add("start_row=125", "rows across a tile's end, the tensor inferred", base.with(rows(125, 0, false)))
	add("zero_head", "a block of zeros has scale 0 and codes 0, no NaN", base.with(func(s *decodeSpec) {
		s.fillV = func(_, _, h, _ int) float64 { return float64(3 * h) }
	}))
	add("one_six", "one element 6, the others 0: scale 0x38", base.with(func(s *decodeSpec) {
		s.fillV = func(_, _, _, d int) float64 {
			if d == 21 {
				return 6
			}
			return 0
		}
	}))
	add("positions", "scales that differ by powers of two in every row and block: any other place would show", base.with(func(s *decodeSpec) {
		s.fillV = func(b, _, h, d int) float64 { return math.Ldexp(6, (b+3*h+5*(d/16))%8-5) }
		s.startRow, s.scaleRows = 31, 128
	}))
	add("columns=9", "block columns are padded to a multiple of 4 (Hq·D/16 = 9)", base.with(func(s *decodeSpec) {
		s.hq, s.hkv, s.d = 3, 3, 48
		s.fillV = func(b, _, h, d int) float64 { return math.Ldexp(6, (b+3*h+5*(d/16))%8-5) }
	}))
	add("columns=18", "the same for head dim 96", base.with(func(s *decodeSpec) {
		s.hq, s.hkv, s.d = 3, 3, 96
		s.fillV = func(b, _, h, d int) float64 { return math.Ldexp(6, (b+3*h+5*(d/16))%8-5) }
	}))
	add("codes", "every code, with its sign, the low nibble first", base.with(func(s *decodeSpec) {
		s.fillV = func(_, _, _, d int) float64 {
			return []float64{6, 0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6}[d%16]
		}
	}))
	add("ties", "ties between codes go to the even one", base.with(func(s *decodeSpec) {
		s.fillV = func(_, _, _, d int) float64 {
			return []float64{6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, 6}[d%16]
		}
	}))
	add("scale_saturates", "a block scale above 448 saturates, and so do its codes", base.with(func(s *decodeSpec) {
		s.osfScale = 1e4
		s.fillV = func(_, _, _, d int) float64 { return float64(d%7) - 3 }
	}))
	add("random", "random values with FlashInfer's test scale of 300", newDecode([]int{60, 0, 17}, 2, 16, 8, 2, 128).with(func(s *decodeSpec) {
		s.q, s.kv, s.out, s.osfScale = attn.E4M3, attn.E4M3, attn.U8, 300
	}))
	return out
}
