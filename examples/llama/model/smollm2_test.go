package model

import (
	"testing"

	"gorgonia.org/tensor"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/internal/testmodel"
)

// BenchmarkOpen is what a run waits for before its first step: the file's metadata, the weights and the graphs.
func BenchmarkOpen(b *testing.B) {
	f, err := gguf.Open(testmodel.SmolLM2(b))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		h, err := ReadHParams(f)
		if err != nil {
			b.Fatal(err)
		}
		m, err := Open(f, h, Config{Context: 512, Requests: 1, Tokens: 512, PageSize: 16, Chunk: 256, KV: tensor.Float32})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
