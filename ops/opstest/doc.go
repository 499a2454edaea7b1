// Package opstest is the conformance suite of gaze's attention ops: whoever writes a backend gives it to [Run] in a test, or
// to [Check] anywhere else, and learns case by case whether it does what the ops promise.
//
// A case is data: what is computed, over which sizes, dtypes, layouts and strides, and why it is worth trying. Its inputs are
// drawn from a seed, everything that must not matter is poisoned (NaN in the unused slots of pages, pages that no table
// names, absurd ids in unused table entries, guard bytes around every buffer, the outputs before the call), and afterwards
// every input and guard must be bit-identical and every output element written exactly as promised. Expected values come from
// the formula in float64; a second, independent derivation (grouped heads, online softmax over random splits) is held against
// the first in this package's own tests, as is a set of deliberately wrong backends, each of which some case must catch.
//
// A backend skips a case only by its own Supports, and the reasons are listed. Value errors are asked for with the call's
// CheckValues set, so a device may look before it launches.
//
//	go test ./ops/opstest                                  every case, and a sample of FlashInfer's grids
//	go test ./ops/opstest -opstest.seed=7                  other numbers, another sample
//	go test ./ops/opstest -opstest.full -timeout=2h        every point of the grids
//	go test ./ops/opstest -run '^$' -bench .               the performance cases
//
// Files: case.go, session.go and operand.go run a case; decode.go, prefill.go, append.go and layer_*.go make the inputs of one
// op each; cases_*.go, grid.go and golden.go are the cases; oracle*.go and blocks.go the float64 computations, reference*.go the
// same as a backend; compare.go the tolerances.
package opstest
