//go:build !amd64 || purego

package quant

import "github.com/gaze-ml/gaze/internal/attn"

func kernelsOf(attn.DType) (none kernels) { return }
