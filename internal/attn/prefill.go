package attn

// PrefillCall is one call of prefill attention over packed requests of varying lengths, FlashInfer's
// cudnn_batch_prefill_with_kv_cache, over a paged cache or ragged (packed) keys and values.
//
// The formula is DecodeCall's without window, sinks and masks: s = scale·q_scale·k_scale·q·k, o times v_scale. Key j is
// visible to row i of request b iff j < S_b and, where causal, j ≤ i + S_b - L_b.
type PrefillCall struct {
	Query         Tensor // [T,Hq,Dqk] f32, f16, bf16 or e4m3
	Key, Value    Tensor // paged [N,Hkv,P,D·] views in HND order, or ragged [Tkv,Hkv,D·]; strides free but 1 on D
	BlockTables   Tensor // [B,maxPages] int32: paged only
	QLens, KVLens Tensor // actual_seq_lens_q and _kv: [B] or [B,1,1,1] int32
	Scale         float64
	MaxQLen       int // max_token_per_sequence ≥ every L_b
	MaxKVLen      int // max_sequence_kv ≥ every S_b
	Causal        bool

	QScale, KScale, VScale Tensor // one f32 each, e4m3 inputs only, all three or none
	// Element offsets of each request's first row from the tensor's base, int32 or int64, [B] or [B+1]. Absent: packed.
	OffsetsQ, OffsetsO, OffsetsK, OffsetsV, OffsetsStats Tensor

	OutDType    DType  // Invalid: the dtype of Out, else of Query
	Backend     string // "", "auto", "cudnn", "cubin"
	CUDAGraph   bool   // is_cuda_graph_compatible: lengths must lie on the device of q
	CheckValues bool
	Workspace   Tensor

	Out  Tensor // [T,Hq,Dvo] contiguous
	LSE  Tensor // [B,MaxQLen,Hq] f32, natural log, padding -inf; absent: not wanted
	LSE2 Tensor // the same in base 2
}

// Op is "prefill".
func (c *PrefillCall) Op() string { return "prefill" }

// Run gives the call to b.
func (c *PrefillCall) Run(b Backend) error { return b.Prefill(c) }

// Paged tells whether K and V are page pools.
func (c *PrefillCall) Paged() bool { return c.Key.Rank == 4 }

// Batch is the number of requests.
func (c *PrefillCall) Batch() int { return c.QLens.Shape[0] }

// Infer checks the call and describes Out where it is empty.
func (c *PrefillCall) Infer() error {
	k := checker{op: "prefill"}
	kv := 3
	if c.Key.Rank == 4 {
		kv = 4
	}
	ok := k.tensor("q", &c.Query, 3, F32, F16, BF16, E4M3)
	ok = k.tensor("k_cache", &c.Key, kv, F32, F16, BF16, E4M3) && ok
	ok = k.tensor("v_cache", &c.Value, kv, F32, F16, BF16, E4M3) && ok
	if kv == 4 {
		ok = k.tensor("block_tables", &c.BlockTables, 2, I32) && ok
	} else if c.BlockTables.Valid() {
		k.add(ErrShape, "block_tables", "none with ragged k_cache and v_cache of rank 3", "%v", c.BlockTables.String())
	}
	ok = lens(&k, "actual_seq_lens_q", &c.QLens) && ok
	ok = lens(&k, "actual_seq_lens_kv", &c.KVLens) && ok
	c.checkScalars(&k)
	if !ok {
		return k.err()
	}
	c.checkDTypes(&k)
	c.checkShapes(&k)
	switch c.Backend {
	case "", "auto", "cudnn", "cubin":
	default:
		k.add(ErrArgument, "backend", `"auto", "cudnn" or "cubin"`, "%q", c.Backend)
	}
	if !k.ok() {
		return k.err()
	}
	b, hq := c.Batch(), c.Query.Shape[1]
	k.output("out", &c.Out, c.outDType(), c.Query.Shape[0], hq, c.Value.Shape[c.Value.Rank-1])
	if c.LSE.Valid() {
		k.output("lse", &c.LSE, F32, b, c.MaxQLen, hq)
	}
	if c.LSE2.Valid() {
		k.output("lse", &c.LSE2, F32, b, c.MaxQLen, hq)
	}
	read := [...]named{{"q", &c.Query}, {"k_cache", &c.Key}, {"v_cache", &c.Value}, {"block_tables", &c.BlockTables}, {"actual_seq_lens_q", &c.QLens},
		{"actual_seq_lens_kv", &c.KVLens}, {"q_scale", &c.QScale}, {"k_scale", &c.KScale}, {"v_scale", &c.VScale}, {"batch_offsets_q", &c.OffsetsQ},
		{"batch_offsets_o", &c.OffsetsO}, {"batch_offsets_k", &c.OffsetsK}, {"batch_offsets_v", &c.OffsetsV}, {"batch_offsets_stats", &c.OffsetsStats}}
	k.apart("workspace_buffer", &c.Workspace, read[:]...)
	for _, out := range [...]named{{"out", &c.Out}, {"lse", &c.LSE}, {"lse", &c.LSE2}} {
		k.apart(out.arg, out.t, read[:]...)
		k.apart(out.arg, out.t, named{"workspace_buffer", &c.Workspace})
	}
	k.apart("lse", &c.LSE, named{"out", &c.Out})
	k.apart("lse", &c.LSE2, named{"out", &c.Out}, named{"the natural lse", &c.LSE})
	return k.err()
}

// lens accepts [B] and cuDNN's [B,1,1,1].
func lens(k *checker, arg string, t *Tensor) bool {
	if t.Rank == 4 && t.Shape[1] == 1 && t.Shape[2] == 1 && t.Shape[3] == 1 {
		k.packed(arg, t)
		return k.tensor(arg, t, 4, I32)
	}
	ok := k.tensor(arg, t, 1, I32)
	k.packed(arg, t)
	return ok
}

func (c *PrefillCall) checkScalars(k *checker) {
	k.finite("scale", c.Scale)
	if c.MaxQLen < 0 {
		k.add(ErrArgument, "max_token_per_sequence", "0 or more", "%d", c.MaxQLen)
	}
	if c.MaxKVLen < 0 {
		k.add(ErrArgument, "max_sequence_kv", "0 or more", "%d", c.MaxKVLen)
	}
	k.scalarTensor("q_scale", &c.QScale)
	k.scalarTensor("k_scale", &c.KScale)
	k.scalarTensor("v_scale", &c.VScale)
}

func (c *PrefillCall) outDType() DType {
	switch {
	case c.OutDType != Invalid:
		return c.OutDType
	case c.Out.Valid():
		return c.Out.DType
	}
	return c.Query.DType
}

func (c *PrefillCall) checkDTypes(k *checker) {
	q := c.Query.DType
	if c.Key.DType != q {
		k.add(ErrDType, "k_cache", q.String(), "%v", c.Key.DType)
	}
	if c.Value.DType != q {
		k.add(ErrDType, "v_cache", q.String(), "%v", c.Value.DType)
	}
	if out := c.outDType(); out != q && !(q == E4M3 && out.Half()) {
		want := q.String()
		if q == E4M3 {
			want = "float8_e4m3, float16 or bfloat16"
		}
		arg, got := givenOut("o_data_type", c.OutDType, out)
		k.add(ErrDType, arg, want, "%s with a %v q", got, q)
	}
	given := 0
	for _, s := range []*Tensor{&c.QScale, &c.KScale, &c.VScale} {
		if s.Valid() {
			given++
		}
	}
	if q != E4M3 && given > 0 {
		k.add(ErrArgument, "q_scale", "scales with float8_e4m3 inputs only", "%d of q_scale, k_scale, v_scale with %v", given, q)
	} else if q == E4M3 && given != 3 {
		k.add(ErrArgument, "q_scale", "q_scale, k_scale and v_scale with float8_e4m3 inputs", "%d of them", given)
	}
}

func (c *PrefillCall) checkShapes(k *checker) {
	hq, dqk := c.Query.Shape[1], c.Query.Shape[2]
	b := c.Batch()
	last := c.Key.Rank - 1
	dvo := c.Value.Shape[last]
	if c.Paged() {
		pagedPair(k, "k_cache", "v_cache", &c.Key, &c.Value)
		k.shape("block_tables", &c.BlockTables, b, -1)
		k.unitLast("block_tables", &c.BlockTables)
	} else {
		for i := range 2 {
			if c.Key.Shape[i] != c.Value.Shape[i] {
				k.add(ErrShape, "v_cache", "tokens and KV heads of k_cache", "K %v, V %v", c.Key.String(), c.Value.String())
				break
			}
		}
		k.unitLast("k_cache", &c.Key)
		k.unitLast("v_cache", &c.Value)
	}
	if c.Key.Shape[last] != dqk {
		k.add(ErrShape, "k_cache", "the head_dim of q", "%d and %d", c.Key.Shape[last], dqk)
	}
	k.headDim("q", dqk)
	k.headDim("v_cache", dvo)
	k.heads(hq, c.Key.Shape[1])
	k.unitLast("q", &c.Query)
	if c.KVLens.Shape[0] != b {
		k.add(ErrShape, "actual_seq_lens_kv", "as many requests as actual_seq_lens_q", "%d and %d", c.KVLens.Shape[0], b)
	}
	k.packed("workspace_buffer", &c.Workspace)
	c.offsets(k, "batch_offsets_q", &c.OffsetsQ)
	c.offsets(k, "batch_offsets_o", &c.OffsetsO)
	c.offsets(k, "batch_offsets_k", &c.OffsetsK)
	c.offsets(k, "batch_offsets_v", &c.OffsetsV)
	c.offsets(k, "batch_offsets_stats", &c.OffsetsStats)
}

// offsets accepts [B] and [B+1], with trailing dimensions of 1.
func (c *PrefillCall) offsets(k *checker, arg string, t *Tensor) {
	if !t.Valid() {
		return
	}
	if t.DType != I32 && t.DType != I64 {
		k.add(ErrDType, arg, "int32 or int64", "%v", t.DType)
	}
	b := c.Batch()
	if n := t.Len(); t.Rank < 1 || t.Shape[0] != n || n != b && n != b+1 {
		k.add(ErrShape, arg, "[B] or [B+1] with B of actual_seq_lens_q", "%v, B %d", t.String(), b)
	}
	k.packed(arg, t)
}
