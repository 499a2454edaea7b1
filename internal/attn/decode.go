package attn

// DecodeCall is one call of paged decode attention, FlashInfer's trtllm_batch_decode_with_kv_cache.
//
// For request b, its query row i at position pos = S_b - L_b + i, head h and KV position j:
//
//	s[j] = bmm1_scale · q[i,h,:]·k[j,h/G,:]        for the visible j
//	o    = bmm2_scale · Σ_j exp(s[j]-m)·v[j] / (Σ_j exp(s[j]-m) + exp(sink_h-m))
//
// with G = Hq/Hkv. Visible: 0 ≤ j < S_b, j ≥ pos-window_left unless that is -1, and j ≤ pos, or, with a mask, every
// j < S_b-L_b and the draft tokens whose bit is set. A row without a visible key is 0 with LSE = sink or -inf.
type DecodeCall struct {
	Query       Tensor // [T,Hq,D] f32, f16, bf16 or e4m3; token and head strides free
	Key, Value  Tensor // [N,Hkv,P,D] views in HND order, strides free but 1 on D
	BlockTables Tensor // [B,maxPages] int32, row stride free; entry (b,n) holds positions nP … nP+P-1
	SeqLens     Tensor // [B] int32 or uint32: S_b, the new tokens included
	MaxSeqLen   int    // upper bound of seq_lens; 0: maxPages·P

	BMM1Scale, BMM2Scale             float64 // used where the tensor is absent
	BMM1ScaleTensor, BMM2ScaleTensor Tensor  // one f32
	WindowLeft                       int     // -1: unlimited; w: the row's own position and w keys before it
	Sinks                            Tensor  // [Hq] f32 logits, in the units of s
	QLenPerReq                       int     // L of every request; 0: not given, 1
	MaxQLen                          int     // with CumSeqLensQ only
	CumSeqLensQ                      Tensor  // [B+1] int32
	Mask                             Tensor  // [B,L,2·ceil(L/32)] uint16, little-endian 32-bit words

	OutDType   DType   // Invalid: the dtype of Out, else of Query; U8 stands for nvfp4
	OScale     float64 // bookkeeping of fp8 outputs: checked, never applied
	OSFScale   float64 // nvfp4: global encode multiplier, 0: not given
	OSFVecSize int     // nvfp4: 16; 0: not given
	SFStartRow int     // nvfp4: token t's scales go to row SFStartRow+t of OutScale

	Backend     string // "", "auto", "xqa", "trtllm-gen"
	PDL         int8   // -1 off, 0 unset, 1 on; no numeric effect
	CheckValues bool   // wait and check lengths and tables before the launch on a device; the CPU always checks
	Workspace   Tensor // scratch, any content

	Out      Tensor // [T,Hq,D] contiguous, or [T,Hq,D/2] uint8 for nvfp4
	OutScale Tensor // nvfp4: e4m3 [a multiple of 128 rows, Hq·D/16 rounded up to 4], 128×4 swizzled
	LSE      Tensor // [T,Hq] f32, natural log, absent: not wanted
	LSE2     Tensor // the same in base 2
}

// NewDecodeCall gives a call with FlashInfer's defaults.
func NewDecodeCall() DecodeCall {
	return DecodeCall{BMM1Scale: 1, BMM2Scale: 1, WindowLeft: -1, OScale: 1}
}

// Op is "decode".
func (c *DecodeCall) Op() string { return "decode" }

// Run gives the call to b.
func (c *DecodeCall) Run(b Backend) error { return b.Decode(c) }

// Batch is the number of requests B and the largest query length L, read from shapes and scalars.
func (c *DecodeCall) Batch() (b, maxQ int) {
	if c.CumSeqLensQ.Valid() {
		return c.CumSeqLensQ.Shape[0] - 1, c.MaxQLen
	}
	maxQ = max(c.QLenPerReq, 1)
	return c.Query.Shape[0] / maxQ, maxQ
}

// NVFP4 tells whether the output is the pair of e2m1 codes and e4m3 block scales.
func (c *DecodeCall) NVFP4() bool { return c.Out.DType == U8 || c.OutDType == U8 }

// Infer checks the call and describes Out, OutScale where they are empty.
func (c *DecodeCall) Infer() error {
	k := checker{op: "decode"}
	q, n := k.tensor("query", &c.Query, 3, F32, F16, BF16, E4M3), k.tensor("kv_cache", &c.Key, 4, F32, F16, BF16, E4M3)
	ok := q && n
	ok = k.tensor("kv_cache", &c.Value, 4, F32, F16, BF16, E4M3) && ok
	ok = k.tensor("block_tables", &c.BlockTables, 2, I32) && ok
	ok = k.tensor("seq_lens", &c.SeqLens, 1, I32, U32) && ok
	ok = k.optional("sinks", &c.Sinks, 1, F32) && ok
	ok = k.optional("cum_seq_lens_q", &c.CumSeqLensQ, 1, I32) && ok
	ok = k.optional("mask", &c.Mask, 3, U16) && ok
	k.scalarTensor("bmm1_scale", &c.BMM1ScaleTensor)
	k.scalarTensor("bmm2_scale", &c.BMM2ScaleTensor)
	c.checkScalars(&k)
	if !ok {
		return k.err()
	}
	c.checkDTypes(&k)
	c.checkShapes(&k)
	c.checkBackend(&k)
	if !k.ok() {
		return k.err()
	}
	c.inferOutputs(&k)
	return k.err()
}

func (c *DecodeCall) checkScalars(k *checker) {
	k.finite("bmm1_scale", c.BMM1Scale)
	k.finite("bmm2_scale", c.BMM2Scale)
	k.positive("o_scale", c.OScale)
	if c.WindowLeft < -1 {
		k.add(ErrArgument, "window_left", "-1 or more", "%d", c.WindowLeft)
	}
	if c.MaxSeqLen < 0 {
		k.add(ErrArgument, "max_seq_len", "0 or more", "%d", c.MaxSeqLen)
	}
	if c.QLenPerReq < 0 {
		k.add(ErrArgument, "q_len_per_req", "1 or more", "%d", c.QLenPerReq)
	}
	if c.CumSeqLensQ.Valid() {
		if c.MaxQLen < 1 {
			k.add(ErrArgument, "max_q_len", "1 or more with cum_seq_lens_q", "%d", c.MaxQLen)
		}
		if c.QLenPerReq > 1 {
			k.add(ErrArgument, "q_len_per_req", "unset or 1 with cum_seq_lens_q", "%d", c.QLenPerReq)
		}
		if c.Mask.Valid() {
			k.add(ErrArgument, "mask", "no mask with cum_seq_lens_q", "both")
		}
	} else if c.MaxQLen != 0 {
		k.add(ErrArgument, "max_q_len", "cum_seq_lens_q with it", "%d alone", c.MaxQLen)
	}
}

func (c *DecodeCall) checkDTypes(k *checker) {
	q, kv := c.Query.DType, c.Key.DType
	if c.Value.DType != kv {
		k.add(ErrDType, "kv_cache", "K and V of one dtype", "%v and %v", kv, c.Value.DType)
	}
	if kv != q && !(kv == E4M3 && q.Half()) {
		k.add(ErrDType, "kv_cache", kvDTypes(q), "%v with a %v query", kv, q)
	}
	out := c.outDType()
	good := out == q
	switch {
	case q.Half():
		good = good || out == E4M3 && kv == E4M3
	case q == E4M3:
		good = good || out.Half() || out == U8
	}
	if !good {
		arg, got := givenOut("out_dtype", c.OutDType, out)
		k.add(ErrDType, arg, decodeOutDTypes(q, kv), "%s with a %v query over a %v cache", got, q, kv)
	}
	if out != E4M3 && c.OScale != 1 {
		k.add(ErrArgument, "o_scale", "1 unless the output is float8_e4m3", "%v", c.OScale)
	}
	if out == U8 {
		k.factor("o_sf_scale", c.OSFScale)
		if c.OSFVecSize != 0 && c.OSFVecSize != 16 {
			k.add(ErrArgument, "o_sf_vec_size", "16", "%d", c.OSFVecSize)
		}
	} else if c.OSFScale != 0 || c.OSFVecSize != 0 {
		k.add(ErrArgument, "o_sf_scale", "neither o_sf_scale nor o_sf_vec_size unless out_dtype is nvfp4", "%v and %d", c.OSFScale, c.OSFVecSize)
	}
}

func kvDTypes(q DType) string {
	if q.Half() {
		return q.String() + " or float8_e4m3"
	}
	return q.String()
}

func decodeOutDTypes(q, kv DType) string {
	switch {
	case q.Half() && kv == E4M3:
		return q.String() + " or float8_e4m3"
	case q == E4M3:
		return "float8_e4m3, float16, bfloat16 or nvfp4"
	}
	return q.String()
}

// givenOut names the argument that says an output's dtype, and that dtype: asked for under name, or that of the caller's buffer.
func givenOut(name string, asked, out DType) (arg, got string) {
	if asked == Invalid {
		return "out", out.String()
	}
	return name, outName(out)
}

func outName(d DType) string {
	if d == U8 {
		return "nvfp4"
	}
	return d.String()
}

func (c *DecodeCall) outDType() DType {
	switch {
	case c.OutDType != Invalid:
		return c.OutDType
	case c.Out.Valid():
		return c.Out.DType
	}
	return c.Query.DType
}

func (c *DecodeCall) checkShapes(k *checker) {
	t, hq, d := c.Query.Shape[0], c.Query.Shape[1], c.Query.Shape[2]
	pagedPair(k, "kv_cache", "kv_cache", &c.Key, &c.Value)
	k.shape("kv_cache", &c.Value, -1, -1, -1, c.Key.Shape[3])
	k.shape("kv_cache", &c.Key, -1, -1, -1, d)
	k.headDim("query", d)
	k.heads(hq, c.Key.Shape[1])
	k.unitLast("query", &c.Query)
	k.unitLast("block_tables", &c.BlockTables)
	k.packed("seq_lens", &c.SeqLens)
	k.packed("cum_seq_lens_q", &c.CumSeqLensQ)
	k.packed("mask", &c.Mask)
	k.packed("workspace_buffer", &c.Workspace)
	k.shape("sinks", &c.Sinks, hq)
	k.packed("sinks", &c.Sinks)
	if c.CumSeqLensQ.Valid() && c.CumSeqLensQ.Shape[0] < 1 {
		k.add(ErrShape, "cum_seq_lens_q", "[B+1]", "%v", c.CumSeqLensQ.String())
		return
	}
	b, l := c.Batch()
	if !c.CumSeqLensQ.Valid() && t%l != 0 {
		k.add(ErrShape, "query", "tokens a multiple of q_len_per_req", "%d tokens, q_len_per_req %d", t, l)
	}
	if b == 0 && t > 0 { // no request for a backend to find it in
		k.add(ErrShape, "cum_seq_lens_q", "requests for the rows of query", "none for %d rows", t)
	}
	k.shape("block_tables", &c.BlockTables, b, -1)
	k.shape("seq_lens", &c.SeqLens, b)
	k.shape("mask", &c.Mask, b, l, 2*((l+31)/32))
	if c.outDType() == U8 && d%16 != 0 {
		k.add(ErrShape, "query", "head_dim a multiple of 16 for nvfp4", "head_dim %d", d)
	}
}

// pagedPair checks what K and V pools of one cache share.
func pagedPair(k *checker, karg, varg string, key, value *Tensor) {
	for i := range 3 {
		if key.Shape[i] != value.Shape[i] {
			k.add(ErrShape, varg, "pages, KV heads and page size of K", "K %v, V %v", key.String(), value.String())
			break
		}
	}
	if key.Shape[2] < 1 {
		k.add(ErrShape, karg, "a page size of 1 or more", "%v", key.String())
	}
	k.unitLast(karg, key)
	k.unitLast(varg, value)
}

// checkBackend applies what a backend's name refuses by feature; shapes never depend on the name.
func (c *DecodeCall) checkBackend(k *checker) {
	_, l := c.Batch()
	switch c.Backend {
	case "", "auto":
	case "xqa":
		if c.outDType() == U8 || c.OSFScale != 0 || c.OSFVecSize != 0 {
			k.add(ErrUnsupported, "backend", "no nvfp4 output and no o_sf_* with xqa", "out %s, o_sf_scale %v, o_sf_vec_size %d",
				outName(c.outDType()), c.OSFScale, c.OSFVecSize)
		}
		if c.CumSeqLensQ.Valid() || c.MaxQLen != 0 {
			k.add(ErrUnsupported, "backend", "no max_q_len and no cum_seq_lens_q with xqa", "max_q_len %d, cum_seq_lens_q %s", c.MaxQLen, c.CumSeqLensQ.String())
		} else if l > 1 && !c.Mask.Valid() {
			k.add(ErrArgument, "mask", "a mask with xqa and q_len_per_req above 1", "none, q_len_per_req %d", l)
		}
		if c.Query.DType == E4M3 {
			k.add(ErrDType, "query", "float16, bfloat16 or float32 with xqa", "%v", c.Query.DType)
		}
	case "trtllm-gen":
		if c.Mask.Valid() {
			k.add(ErrUnsupported, "mask", "no mask with trtllm-gen, which is always causal", "%v", c.Mask.String())
		}
	default:
		k.add(ErrArgument, "backend", `"auto", "xqa" or "trtllm-gen"`, "%q", c.Backend)
	}
}

func (c *DecodeCall) inferOutputs(k *checker) {
	t, hq, d := c.Query.Shape[0], c.Query.Shape[1], c.Query.Shape[2]
	out := c.outDType()
	if out != U8 {
		k.output("out", &c.Out, out, t, hq, d)
		if c.OutScale.Valid() {
			k.add(ErrArgument, "out", "no block scales unless out_dtype is nvfp4", "%v", c.OutScale.String())
		}
	} else {
		k.output("out", &c.Out, U8, t, hq, d/2)
		cols := (hq*d/16 + 3) / 4 * 4
		rows := (c.SFStartRow + t + 127) / 128 * 128
		if !c.OutScale.Valid() {
			c.OutScale = Of(E4M3, rows, cols)
		} else if k.optional("out", &c.OutScale, 2, E4M3) {
			k.shape("out", &c.OutScale, -1, cols)
			k.packed("out", &c.OutScale)
			rows = c.OutScale.Shape[0]
			if rows%128 != 0 {
				k.add(ErrShape, "out", "scale rows a multiple of 128", "%v", c.OutScale.String())
			}
		}
		if c.SFStartRow < 0 || c.SFStartRow+t > rows || c.SFStartRow >= rows && rows > 0 {
			k.add(ErrShape, "scale_start_index", "room for every token below the scale tensor's rows",
				"start %d, %d tokens, %d rows", c.SFStartRow, t, rows)
		}
	}
	if c.LSE.Valid() {
		k.output("lse", &c.LSE, F32, t, hq)
	}
	if c.LSE2.Valid() {
		k.output("lse", &c.LSE2, F32, t, hq)
	}
	read := [...]named{{"query", &c.Query}, {"kv_cache", &c.Key}, {"kv_cache", &c.Value}, {"block_tables", &c.BlockTables}, {"seq_lens", &c.SeqLens},
		{"sinks", &c.Sinks}, {"mask", &c.Mask}, {"cum_seq_lens_q", &c.CumSeqLensQ}, {"bmm1_scale", &c.BMM1ScaleTensor}, {"bmm2_scale", &c.BMM2ScaleTensor}}
	k.apart("workspace_buffer", &c.Workspace, read[:]...)
	for _, out := range [...]named{{"out", &c.Out}, {"out", &c.OutScale}, {"lse", &c.LSE}, {"lse", &c.LSE2}} {
		k.apart(out.arg, out.t, read[:]...)
		k.apart(out.arg, out.t, named{"workspace_buffer", &c.Workspace})
	}
	k.apart("out", &c.OutScale, named{"the codes", &c.Out})
	k.apart("lse", &c.LSE, named{"out", &c.Out}, named{"out", &c.OutScale})
	k.apart("lse", &c.LSE2, named{"out", &c.Out}, named{"out", &c.OutScale}, named{"the natural lse", &c.LSE})
}
