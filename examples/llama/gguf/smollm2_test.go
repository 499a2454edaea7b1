package gguf

import (
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
