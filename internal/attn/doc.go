// Package attn is the contract between gaze's graph ops and the backends that run them: plain call structs, their checks and
// shape inference, the [Backend] interface and the typed errors. It knows neither Gorgonia nor any device.
//
// A call struct holds one [Tensor] per operand (a pointer, a dtype, sizes and element strides) and the scalars of the call.
// Infer checks everything that needs no tensor value and describes the outputs that were left empty, so the same function
// answers at graph-build time (no pointers yet), in a direct call, and once more just before a run. Values of lengths, block
// tables and offsets are the backend's to check.
//
// Letters in shapes: T query tokens in total, B requests, Hq and Hkv query and KV heads, D head dim (Dqk and Dvo where they
// differ), N pages in the pool, P page size in tokens, S_b the KV length and L_b the query length of request b.
package attn
