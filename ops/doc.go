// Package ops holds FlashInfer's attention as Gorgonia graph ops, and the other ops of a Llama decoder layer.
//
// Each op comes twice. A constructor ([BatchDecode], [BatchPrefill], [AppendKV], [RMSNorm], …) takes nodes, checks shapes and
// dtypes at once and gives a node of the graph. A direct call ([Decode], [Prefill], [Append], …) takes tensors and runs now.
// Both fill the same call struct and hand it to the backend that owns the tensors' memory.
//
// An error is an [*Error], or several joined: it names the op, the argument by FlashInfer's name, what it got and what it
// wants, and unwraps to one of the sentinels ([ErrShape], [ErrDType], [ErrArgument], …).
//
// Letters in shapes: T query tokens in total, B requests, Hq and Hkv query and KV heads, D head dim, N pages in the pool, P
// page size in tokens, S_b the KV length and L_b the query length of request b.
//
// # Values under gorgonia's TapeMachine
//
// There an op owns its output, whose value lives until that op runs again. graph.Machine plans the buffers instead, and then
// an op holds no state at all: one graph can be run by several Machines at once.
package ops
