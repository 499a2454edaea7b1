// Package graph makes and runs model graphs: builders of Llama's decoder layers over the ops of package ops, the [Machine] that
// runs a graph, and the paged [KVCache] that a graph appends to and attends over.
//
// A [Machine] is a gorgonia.VM over an ordinary ExprGraph. It gives what gorgonia.NewTapeMachine gives, on the same graph, with
// less: it plans every buffer once, allocates nothing per run, and runs the ops in order on one locked thread.
//
// Errors are [ops.Error] values, or wrap them, and unwrap to the sentinels of package ops.
package graph
