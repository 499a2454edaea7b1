package opstest_test

import (
	"testing"

	"github.com/gaze-ml/gaze/ops/opstest"
)

// The oracle passes its own suite as a backend, which reads tensors through the call's strides and tables while the expected
// values come from the logical inputs.
func TestReference(t *testing.T) {
	opstest.Run(t, opstest.Target{Backend: &opstest.Reference{}})
}
