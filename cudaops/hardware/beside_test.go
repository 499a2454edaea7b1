//go:build gpu && linux && amd64 && cgo

package hardware

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/cudaops"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/internal/safetensors"
	"github.com/gaze-ml/gaze/ops"
)

var (
	beside    = flag.String("beside", "", "TestBeside: folder of calls that bench/beside_flashinfer.py has drawn")
	besideCPU = flag.Bool("beside.cpu", false, "TestBeside: run them on the CPU")
)

// TestBeside runs the calls of the folder that -beside names, NAME.safetensors, by ops' direct calls, and writes what they give to
// NAME.out, or their errors to NAME.error; whoever drew them judges. Without the flag it runs calls whose answers are known.
func TestBeside(t *testing.T) {
	var rt *cudaops.Runtime
	if !*besideCPU {
		rt = open(t, 0)
	}
	folder := *beside
	if folder == "" {
		folder = t.TempDir()
		known(t, folder)
	}
	runFolder(t, rt, folder)
	if *beside == "" {
		checkKnown(t, folder)
	}
}

// TestBesideOnCPU is the same on the CPU, with calls whose answers are known: it needs no GPU.
func TestBesideOnCPU(t *testing.T) {
	folder := t.TempDir()
	known(t, folder)
	runFolder(t, nil, folder)
	checkKnown(t, folder)
}

func runFolder(t *testing.T, rt *cudaops.Runtime, folder string) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	must(t, err)
	if len(paths) == 0 {
		t.Fatalf("no *.safetensors in %q", folder)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(path, ".safetensors")
		b, err := os.ReadFile(path)
		must(t, err)
		out, err := runStored(rt, b)
		if err == nil {
			err = os.WriteFile(name+".out", out, 0o600)
		}
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(path), err)
			must(t, os.WriteFile(name+".error", []byte(err.Error()), 0o600))
		}
	}
	t.Logf("%d calls", len(paths))
}

// storedCall are a call's arguments that are no tensors, by FlashInfer's names.
type storedCall struct {
	Op       string `json:"op"`
	Layout   string `json:"kv_layout"`
	OutDType string `json:"out_dtype"`
	LSE      bool   `json:"lse"`

	BMM1      float64 `json:"bmm1_scale"`
	BMM2      float64 `json:"bmm2_scale"`
	Window    int     `json:"window_left"`
	QLen      int     `json:"q_len_per_req"`
	MaxQLen   int     `json:"max_q_len"`
	MaxSeqLen int     `json:"max_seq_len"`

	Scale  float64 `json:"scale"`
	Causal bool    `json:"causal"`
	MaxQ   int     `json:"max_token_per_sequence"`
	MaxKV  int     `json:"max_sequence_kv"`
}

// stored are the tensors of a call on the device, nil: the host. Those that are asked for and missing are nil.
type stored struct {
	rt   *cudaops.Runtime
	file *safetensors.File
	made []*tensor.Dense
	errs []error
}

func runStored(rt *cudaops.Runtime, b []byte) (out []byte, err error) {
	f, err := safetensors.Parse(b)
	if err != nil {
		return nil, err
	}
	var c storedCall
	if err := json.Unmarshal([]byte(f.Meta["call"]), &c); err != nil {
		return nil, fmt.Errorf("call: %w", err)
	}
	s := &stored{rt: rt, file: f}
	defer func() { err = errors.Join(err, s.free()) }()
	dt, ok := map[string]tensor.Dtype{"F32": tensor.Float32, "F16": ops.Float16, "BF16": ops.BFloat16, "F8_E4M3": ops.Float8E4M3}[c.OutDType]
	if !ok {
		return nil, fmt.Errorf("out_dtype %q", c.OutDType)
	}
	run := s.decode
	if c.Op == "prefill" {
		run = s.prefill
	}
	results, err := run(&c, dt)
	if err != nil {
		return nil, err
	}
	answer := safetensors.File{Tensors: make(map[string]safetensors.Tensor)}
	for name, r := range results {
		if answer.Tensors[name], err = s.read(r); err != nil {
			return nil, err
		}
	}
	return answer.Bytes()
}

func (s *stored) decode(c *storedCall, dt tensor.Dtype) (map[string]*tensor.Dense, error) {
	q := s.file.Tensors["query"]
	a := ops.DecodeArgs{
		Query: s.get("query"), KV: s.kv(c), BlockTables: s.get("block_tables"), SeqLens: s.get("seq_lens"), MaxSeqLen: c.MaxSeqLen,
		BMM1Scale: s.get("bmm1_scale"), BMM2Scale: s.get("bmm2_scale"), Sinks: s.get("sinks"), Mask: s.get("mask"),
		CumSeqLensQ: s.get("cum_seq_lens_q"), MaxQLen: c.MaxQLen, Out: s.poisoned(dt, q.Shape[:q.Rank]...),
	}
	results := map[string]*tensor.Dense{"out": a.Out}
	if c.LSE {
		a.LSE = s.poisoned(tensor.Float32, q.Shape[:2]...)
		results["lse"] = a.LSE
	}
	opts := []ops.Option{ops.WithWindowLeft(c.Window), ops.WithOutDType(dt)}
	if a.BMM1Scale == nil {
		opts = append(opts, ops.WithBMM1Scale(c.BMM1))
	}
	if a.BMM2Scale == nil {
		opts = append(opts, ops.WithBMM2Scale(c.BMM2))
	}
	if c.QLen > 1 {
		opts = append(opts, ops.WithQLenPerReq(c.QLen))
	}
	if err := errors.Join(s.errs...); err != nil {
		return nil, err
	}
	return results, ops.Decode(a, opts...)
}

// prefill gives the LSE packed, [T,Hq], as decode does.
func (s *stored) prefill(c *storedCall, dt tensor.Dtype) (map[string]*tensor.Dense, error) {
	q, v, lens := s.file.Tensors["q"], s.file.Tensors["v_cache"], s.file.Tensors["actual_seq_lens_q"]
	if kv, ok := s.file.Tensors["kv_cache"]; ok {
		v = kv
	}
	rows, heads := q.Shape[0], q.Shape[1]
	a := ops.PrefillArgs{
		Query: s.get("q"), KV: s.kv(c), BlockTables: s.get("block_tables"), QLens: s.get("actual_seq_lens_q"), KVLens: s.get("actual_seq_lens_kv"),
		Scale: c.Scale, Causal: c.Causal, MaxQLen: c.MaxQ, MaxKVLen: c.MaxKV,
		QScale: s.get("q_scale"), KScale: s.get("k_scale"), VScale: s.get("v_scale"), Out: s.poisoned(dt, rows, heads, v.Shape[v.Rank-1]),
	}
	if c.LSE {
		a.LSE = s.poisoned(tensor.Float32, lens.Len(), c.MaxQ, heads)
	}
	if err := errors.Join(s.errs...); err != nil {
		return nil, err
	}
	if err := ops.Prefill(a, ops.WithODataType(dt)); err != nil || !c.LSE {
		return map[string]*tensor.Dense{"out": a.Out}, err
	}
	dense, err := s.read(a.LSE)
	if err != nil {
		return nil, err
	}
	packed, err := ops.NewTensor(tensor.Float32, tensor.Shape{rows, heads}, nil)
	if err != nil {
		return nil, err
	}
	to := bytesOf(packed)
	for b := range lens.Len() {
		n := int(*(*int32)(unsafe.Pointer(&lens.Bytes[4*b]))) * heads * 4
		to = to[copy(to, dense.Bytes[b*c.MaxQ*heads*4:][:n]):]
	}
	return map[string]*tensor.Dense{"out": a.Out, "lse": packed}, nil
}

func (s *stored) kv(c *storedCall) ops.KV[*tensor.Dense] {
	layout := ops.HND
	if c.Layout == "NHD" {
		layout = ops.NHD
	}
	if x := s.get("kv_cache"); x != nil {
		return ops.StackedKV(x, layout)
	}
	k, v := s.get("k_cache"), s.get("v_cache")
	if _, paged := s.file.Tensors["block_tables"]; paged {
		return ops.PairKV(k, v, layout)
	}
	return ops.RaggedKV(k, v)
}

func (s *stored) get(name string) *tensor.Dense {
	t, ok := s.file.Tensors[name]
	if !ok {
		return nil
	}
	h := ops.Alloc(t.Tensor)
	copy(bytesOf(h), t.Bytes)
	return s.place(h)
}

// poisoned is an output before the call: all bits set, a NaN of every type.
func (s *stored) poisoned(dt tensor.Dtype, shape ...int) *tensor.Dense {
	h := ops.Alloc(attn.Of(ops.DTypeOf(dt), shape...))
	for b := bytesOf(h); len(b) > 0; b = b[1:] {
		b[0] = 0xff
	}
	return s.place(h)
}

func (s *stored) place(h *tensor.Dense) *tensor.Dense {
	if s.rt == nil {
		return h
	}
	d, err := s.rt.Upload(h)
	if err != nil {
		s.errs = append(s.errs, err)
		return nil
	}
	s.made = append(s.made, d)
	return d
}

func (s *stored) free() error {
	var errs []error
	for _, d := range s.made {
		errs = append(errs, s.rt.FreeTensor(d))
	}
	return errors.Join(errs...)
}

// read waits for a result.
func (s *stored) read(d *tensor.Dense) (safetensors.Tensor, error) {
	desc, err := ops.View("read", "result", d)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	if s.rt != nil && s.rt.Owns(desc.Ptr, desc.Bytes()) {
		if d, err = s.rt.Download(d); err != nil {
			return safetensors.Tensor{}, err
		}
	}
	b := bytesOf(d)
	desc.Ptr = nil
	return safetensors.Tensor{Tensor: desc, Bytes: b}, nil
}

// bytesOf are those of a host tensor that ops has made.
func bytesOf(d *tensor.Dense) []byte {
	v, err := ops.View("bytes", "tensor", d)
	if err != nil {
		panic(err)
	}
	return unsafe.Slice((*byte)(v.Ptr), v.Bytes())
}

// known writes a decode and a paged prefill of one request and a ragged prefill of two, with q = 0: every output is the mean of the values seen, 0, 1, 2, … by position,
// and every LSE the logarithm of their number.
func known(t *testing.T, folder string) {
	tensors := func(x map[string]*tensor.Dense) map[string]safetensors.Tensor {
		out := make(map[string]safetensors.Tensor)
		for name, d := range x {
			v, err := (&stored{}).read(d)
			must(t, err)
			out[name] = v
		}
		return out
	}
	of := func(dt tensor.Dtype, values []float32, shape ...int) *tensor.Dense {
		d, err := ops.NewTensor(dt, shape, values)
		must(t, err)
		return d
	}
	const d, n = 64, 5
	rows := make([]float32, 2*2*4*d) // two pages of K and V, of four tokens; the table turns them around
	for i := range n {
		for j := range d {
			rows[((1-i/4)*2+1)*4*d+i%4*d+j] = float32(i)
		}
	}
	write := func(name, call string, x map[string]*tensor.Dense) {
		b, err := (&safetensors.File{Meta: map[string]string{"call": call}, Tensors: tensors(x)}).Bytes()
		must(t, err, os.WriteFile(filepath.Join(folder, name+".safetensors"), b, 0o600))
	}
	write("decode", `{"op": "decode", "kv_layout": "NHD", "out_dtype": "BF16", "lse": true, "bmm1_scale": 1, "bmm2_scale": 1, "window_left": 2, "q_len_per_req": 2}`, map[string]*tensor.Dense{
		"query": of(ops.BFloat16, nil, 2, 2, d), "kv_cache": of(ops.BFloat16, rows, 2, 2, 4, 1, d), "block_tables": of(tensor.Int32, []float32{1, 0, -1}, 1, 3),
		"seq_lens": of(tensor.Int32, []float32{n}, 1),
	})
	write("paged", `{"op": "prefill", "kv_layout": "HND", "out_dtype": "F16", "lse": true, "scale": 1, "max_token_per_sequence": 2, "max_sequence_kv": 8}`, map[string]*tensor.Dense{
		"q": of(ops.Float16, nil, 2, 1, d), "kv_cache": of(ops.Float16, rows, 2, 2, 1, 4, d), "block_tables": of(tensor.Int32, []float32{1, 0}, 1, 2),
		"actual_seq_lens_q": of(tensor.Int32, []float32{2}, 1), "actual_seq_lens_kv": of(tensor.Int32, []float32{n}, 1),
	})
	write("prefill", `{"op": "prefill", "kv_layout": "NHD", "out_dtype": "F16", "lse": true, "scale": 1, "causal": true, "max_token_per_sequence": 2, "max_sequence_kv": 3}`, map[string]*tensor.Dense{
		"q": of(ops.Float16, nil, 3, 1, d), "k_cache": of(ops.Float16, nil, 4, 1, d), "v_cache": of(ops.Float16, rows[3*4*d:][:4*d], 4, 1, d), // 0, 1, 2, 3: of the requests 0, 1, 2 and 3
		"actual_seq_lens_q": of(tensor.Int32, []float32{2, 1}, 2), "actual_seq_lens_kv": of(tensor.Int32, []float32{3, 1}, 2),
	})
}

func checkKnown(t *testing.T, folder string) {
	for name, want := range map[string]struct {
		dt   attn.DType
		out  []float32 // of each row of a head
		seen []float64
	}{
		"decode":  {attn.BF16, []float32{2, 2, 3, 3}, []float64{3, 3, 3, 3}},
		"paged":   {attn.F16, []float32{2, 2}, []float64{5, 5}},
		"prefill": {attn.F16, []float32{0.5, 1, 3}, []float64{2, 3, 1}},
	} {
		b, err := os.ReadFile(filepath.Join(folder, name+".out"))
		must(t, err)
		f, err := safetensors.Parse(b)
		must(t, err)
		out, lse := f.Tensors["out"], f.Tensors["lse"]
		if out.DType != want.dt || out.Len() != len(want.out)*64 || lse.Len() != len(want.seen) {
			t.Errorf("%s: out is %v, lse is %v", name, out.String(), lse.String())
			continue
		}
		s := &stored{file: f}
		got, err := ops.Float32s(s.get("out"))
		must(t, err)
		logs, err := ops.Float32s(s.get("lse"))
		must(t, err)
		for i, x := range got {
			if x != want.out[i/64] {
				t.Errorf("%s: out %d is %v, want %v", name, i, x, want.out[i/64])
				break
			}
		}
		for i, x := range logs {
			if math.Abs(float64(x)-math.Log(want.seen[i])) > 1e-5 {
				t.Errorf("%s: lse %d is %v, want ln %v", name, i, x, want.seen[i])
			}
		}
	}
}
