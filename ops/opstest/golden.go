package opstest

import (
	_ "embed"
	"encoding/json"
	"math"
	"slices"
	"sync"

	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/safetensors"
)

// goldenFile holds small cases with the outputs of FlashInfer 0.6.4 on an H200 (decode by xqa, prefill by cuDNN) beside a
// float64 oracle's: someone else's reading of the same contract.
//
//go:embed testdata/flashinfer.safetensors
var goldenFile []byte

// goldenTensors are the tensors of a safetensors file.
type goldenTensors struct{ *safetensors.File }

func (f goldenTensors) has(name string) bool { _, ok := f.Tensors[name]; return ok }

func (f goldenTensors) get(name string) (desc attn.Tensor, b []byte) {
	t, ok := f.Tensors[name]
	if !ok {
		panic("opstest: no golden tensor " + name)
	}
	return t.Tensor, t.Bytes
}

func (f goldenTensors) ints(name string) []int {
	_, b := f.get(name)
	out := make([]int, len(b)/4)
	for i := range out {
		out[i] = int(int32(le.Uint32(b[4*i:])))
	}
	return out
}

func (f goldenTensors) floats(name string) []float64 {
	desc, b := f.get(name)
	out := make([]float64, desc.Len())
	decodeRow(out, desc.DType, b)
	return out
}

// goldenInfo are a case's scalars.
type goldenInfo struct {
	Op           string  `json:"op"`
	BMM1         float64 `json:"bmm1_scale"`
	BMM2         float64 `json:"bmm2_scale"`
	Window       int     `json:"window_left"`
	Layout       string  `json:"kv_layout"`
	QLen         int     `json:"q_len_per_req"`
	MaxSeqLen    int     `json:"max_seq_len"`
	Scale        float64 `json:"scale"`
	Causal       bool    `json:"causal"`
	PageSize     int     `json:"page_size"`
	MaxQ         int     `json:"max_token_per_sequence"`
	MaxKV        int     `json:"max_sequence_kv"`
	Peer         string  `json:"peer"`
	PeerRelError float64 `json:"peer_rel_err"`
}

var golden = sync.OnceValues(func() (goldenTensors, map[string]goldenInfo) {
	f, err := safetensors.Parse(goldenFile)
	if err != nil {
		panic("opstest: " + err.Error())
	}
	var info map[string]goldenInfo
	if err := json.Unmarshal([]byte(f.Meta["cases"]), &info); err != nil {
		panic("opstest: golden cases: " + err.Error())
	}
	return goldenTensors{f}, info
})

func goldenCases() []Case {
	_, info := golden()
	names := make([]string, 0, len(info))
	for name := range info {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []Case
	for _, name := range names {
		out = append(out, Case{Name: info[name].Op + "/golden/" + name, Op: info[name].Op, List: Correctness, body: goldenBody(name),
			Why: "the inputs and outputs of " + info[name].Peer + ", with our own poison in unused pages and slots"})
	}
	return out
}

// goldenBody is one stored case by name.
type goldenBody string

func (g goldenBody) check(ses *session) {
	f, infos := golden()
	name, info := string(g)+".", infos[string(g)]
	if info.Op == "decode" {
		c := goldenDecode(ses, f, name, info)
		if ses.run(&c.instance) {
			ses.checkGolden(f, name, info, c.out.floats(), c.cache.maxAbsV(), c.out.desc.DType)
		}
		return
	}
	c := goldenPrefill(ses, f, name, info)
	if ses.run(&c.instance) {
		ses.checkGolden(f, name, info, c.out.floats(), c.cache.maxAbsV(), c.out.desc.DType)
		want, got := f.floats(name+"lse"), c.lse.floats()
		d := diff{name: "lse beside the stored one"}
		for i, w := range want {
			d.add(i, got[i], w, 3e-3+1e-3*math.Abs(w), attn.F32)
		}
		ses.fail(onlyBad(&d))
	}
}

// checkGolden holds an output against the stored oracle by the ordinary bound, and against FlashInfer's output within what the two
// together may err: FlashInfer's own largest error, and that bound.
func (s *session) checkGolden(f goldenTensors, name string, info goldenInfo, got []float64, maxV float64, dt attn.DType) {
	oracle, peer := f.floats(name+"oracle"), f.floats(name+"out")
	top := 0.0
	for _, w := range oracle {
		top = math.Max(top, math.Abs(w))
	}
	t := s.tolerance(dt, attn.Invalid)
	t.scale = maxV
	ours, theirs := diff{name: "out beside the stored oracle"}, diff{name: "out beside " + info.Peer}
	for i, w := range oracle {
		bound := t.bound(w, top) + 1e-6*math.Abs(w)
		ours.add(i, got[i], w, bound, dt)
		theirs.add(i, got[i], peer[i], info.PeerRelError*top+bound, dt)
	}
	s.fail(onlyBad(&ours))
	s.fail(onlyBad(&theirs))
}

func (c *cache) maxAbsV() float64 {
	top := 0.0
	for _, rows := range c.v {
		v := make([]float64, len(rows)/c.dt.Size())
		decodeRow(v, c.dt, rows)
		for _, x := range v {
			top = math.Max(top, math.Abs(x))
		}
	}
	return top
}

// logicalRows reads the rows of each request out of a stored pool, [N,Hkv,P,D] by the strides given.
func logicalRows(lens []int, table []int, columns, page, hkv, d, size int, at func(page, h, slot int) int, pool []byte) [][]byte {
	out := make([][]byte, len(lens))
	for b, s := range lens {
		for j := range s {
			for h := range hkv {
				from := at(table[b*columns+j/page], h, j%page) * size
				out[b] = append(out[b], pool[from:from+d*size]...)
			}
		}
	}
	return out
}

func goldenDecode(ses *session, f goldenTensors, name string, info goldenInfo) *decodeCase {
	q, queries := f.get(name + "query")
	kv, pool := f.get(name + "kv_cache")
	table, _ := f.get(name + "block_tables")
	hkv, stride, form := kv.Shape[2], [2]int{kv.Stride[2], kv.Stride[3]}, stackedHND
	if info.Layout == "NHD" {
		hkv, stride, form = kv.Shape[3], [2]int{kv.Stride[3], kv.Stride[2]}, stackedNHD
	}
	spec := newDecode(f.ints(name+"seq_lens"), info.QLen, info.PageSize, q.Shape[1], hkv, q.Shape[2]).with(func(s *decodeSpec) {
		s.q, s.kv, s.form = q.DType, kv.DType, form
		s.bmm1, s.bmm2, s.window, s.maxSeqLen = info.BMM1, info.BMM2, info.Window, info.MaxSeqLen
		if f.has(name + "sinks") {
			s.sinks = f.floats(name + "sinks")
		}
		if f.has(name + "mask") {
			m, _ := f.get(name + "mask")
			words := f.ints(name + "mask")
			s.mask = func(b, i, c int) bool { return words[(b*m.Shape[1]+i)*m.Shape[2]+c/16]>>(c%16)&1 == 1 }
		}
	})
	rows := func(axis int) [][]byte {
		return logicalRows(spec.kvLens, f.ints(name+"block_tables"), table.Shape[1], spec.page, hkv, spec.d, kv.DType.Size(), func(page, h, slot int) int {
			return page*kv.Stride[0] + axis*kv.Stride[1] + h*stride[0] + slot*stride[1]
		}, pool)
	}
	return spec.buildWith(ses, queries, rows(0), rows(1))
}

func goldenPrefill(ses *session, f goldenTensors, name string, info goldenInfo) *prefillCase {
	q, queries := f.get(name + "q")
	k, kPool := f.get(name + "k_cache")
	v, vPool := f.get(name + "v_cache")
	qLens, kvLens := f.ints(name+"actual_seq_lens_q"), f.ints(name+"actual_seq_lens_kv")
	spec := newPrefill(qLens, kvLens, info.PageSize, q.Shape[1], k.Shape[1], q.Shape[2]).with(func(s *prefillSpec) {
		s.in, s.dvo, s.scale, s.causal, s.maxQ, s.maxKV = q.DType, v.Shape[v.Rank-1], info.Scale, info.Causal, info.MaxQ, info.MaxKV
	})
	rows := func(t attn.Tensor, pool []byte, d int) [][]byte {
		if info.PageSize == 0 {
			n, size := k.Shape[1]*d, t.DType.Size()
			out := make([][]byte, len(kvLens))
			for b, at := range prefix(kvLens)[:len(kvLens)] {
				out[b] = pool[at*n*size : (at+kvLens[b])*n*size]
			}
			return out
		}
		table, _ := f.get(name + "block_tables")
		return logicalRows(kvLens, f.ints(name+"block_tables"), table.Shape[1], info.PageSize, k.Shape[1], d, t.DType.Size(), func(page, h, slot int) int {
			return page*t.Stride[0] + h*t.Stride[1] + slot*t.Stride[2]
		}, pool)
	}
	return spec.buildWith(ses, queries, rows(k, kPool, spec.dqk), rows(v, vPool, spec.dvo))
}
