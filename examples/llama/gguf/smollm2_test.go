package gguf

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
)

// The real file, whose census is known from other software, fills its data section to the last byte.
func TestSmolLM2(t *testing.T) {
	f, err := Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count, bytes := map[Type]int{}, 0
	for _, tensor := range f.Tensors {
		count[tensor.Type]++
		bytes += len(tensor.Data)
	}
	if len(f.Keys()) != 33 || len(f.Tensors) != 272 || count[Q4_1] != 210 || count[F32] != 61 || count[Q8_0] != 1 {
		t.Errorf("%d keys, tensors %v; want 33 keys, Q4_1 ×210, F32 ×61, Q8_0 ×1", len(f.Keys()), count)
	}
	if want := 96_576_768; bytes != want {
		t.Errorf("%d bytes of tensors, want %d", bytes, want)
	}
	embd, err := f.Tensor("token_embd.weight")
	if err != nil || embd.Type != Q8_0 || embd.Shape[0] != 49152 || embd.Shape[1] != 576 || embd.RowBytes() != 612 {
		t.Errorf("token_embd.weight: %v %v, %v", embd.Type, embd.Shape, err)
	}
	if layers, err := Get[int](f, "llama.block_count"); layers != 30 || err != nil {
		t.Errorf("%d layers, %v", layers, err)
	}
}

func BenchmarkOpen(b *testing.B) {
	path := testmodel.SmolLM2(b)
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// The real file cut anywhere in its header, or in its tensors, is refused, with memory in proportion to what is left.
func TestSmolLM2Cut(t *testing.T) {
	f, err := Open(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := os.ReadFile(testmodel.SmolLM2(t))
	if err != nil {
		t.Fatal(err)
	}
	header := len(data)
	for _, x := range f.Tensors[:20] {
		header = min(header, bytes.Index(data, x.Data[:128]))
	}
	cuts := []int{header, header - 1, header + 1, len(data) - 1, len(data) / 2}
	for n := range 1500 { // the first keys, byte by byte
		cuts = append(cuts, n)
	}
	r := rand.New(rand.NewPCG(1, 2)) // seed 1, 2
	for range 150 {
		cuts = append(cuts, r.IntN(header))
	}
	for _, n := range cuts {
		_, allocated, err := parse(data[:n:n])
		var typed *Error
		if !errors.Is(err, ErrFormat) || !errors.As(err, &typed) || typed.Item == "" || typed.Got == "" || typed.Want == "" {
			t.Fatalf("cut to %d of %d bytes: got %v, want ErrFormat", n, len(data), err)
		}
		if allocated > allowed(n) {
			t.Fatalf("cut to %d bytes: %d allocated", n, allocated)
		}
	}
}
