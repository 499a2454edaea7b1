// Package ops holds FlashInfer's attention as Gorgonia graph ops, the other ops of a Llama decoder layer, and what
// sampling needs of its logits.
//
// Each op comes twice. A constructor ([BatchDecode], [BatchPrefill], [AppendKV], [RMSNorm], …) takes nodes, checks shapes and
// dtypes at once and gives a node of the graph. A direct call ([Decode], [Prefill], [Append], …) takes tensors and runs now.
// Both fill the same call struct and hand it to the backend of the device where the tensors lie.
//
// An error is an [*Error], or several joined: it names the op, the argument by FlashInfer's name, what it got and what it
// wants, and unwraps to one of the sentinels ([ErrShape], [ErrDType], [ErrArgument], …).
//
// Letters in shapes: T query tokens in total, B requests, Hq and Hkv query and KV heads, D head dim, N pages in the pool, P
// page size in tokens, S_b the KV length and L_b the query length of request b.
//
// # Devices
//
// A tensor lies on a [Device] or on the host, and its address alone tells where. The tensors of one call lie in one place; only
// lengths, tables and offsets, which are the operands of integers, may be the host's beside tensors on a device. Anything else is
// ErrDevice. Under graph.Machine values are copied to where they are needed.
//
// # Beside Gorgonia's own ops
//
// The ops of gaze are for inference: gorgonia.Grad through one is an error. Gorgonia's arithmetic takes none of the dtypes that
// this package adds; [Cast] brings their values to float32 before it.
//
// # Values under gorgonia's TapeMachine
//
// There an op owns its output, whose value lives until that op runs again. graph.Machine plans the buffers instead, and then
// an op holds no state at all: one graph can be run by several Machines at once.
package ops
