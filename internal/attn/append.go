package attn

// AppendCall writes new keys and values into a paged cache, in place:
//
//	page = block_tables[request[t], position[t] / P], slot = position[t] % P
//	cache[page, h, slot, :] = k[t, h, :]
//
// Row t belongs to Requests[t] at Positions[t]; a position of -1 skips the row. Of several rows with one place a device keeps any. Instead of
// both, CumSeqLens and StartPositions say that rows cum[b] … cum[b+1]-1 belong to request b from start[b] on. A float8_e4m3 cache stores
// sat(x/scale).
//
// With a RoPEConfig keys are turned by their positions on the way, as by [RoPECall] but rounded once, to the cache's dtype, and Query, if
// there is one, into QueryOut; query rows of skipped keys are copied as they are. On a device query rows of bad values become 0.
type AppendCall struct {
	KeyCache, ValueCache Tensor // [N,Hkv,P,Dk], [N,Hkv,P,Dv] views in HND order
	Key, Value           Tensor // [T,Hkv,Dk], [T,Hkv,Dv]; the cache's dtype, or f32, f16, bf16
	BlockTables          Tensor // [B,maxPages] int32
	Positions, Requests  Tensor // [T] int32
	CumSeqLens           Tensor // [B+1] int32
	StartPositions       Tensor // [B] int32

	RoPEConfig        // the zero value: none
	Factors    Tensor // [R/2] f32, see [RoPECall], or absent
	Query      Tensor // [T,Hq,Dk] the dtype of k, or absent; with RoPE only
	QueryOut   Tensor // [T,Hq,Dk]; may be Query

	KScale, VScale float64 // e4m3 caches only, 1 otherwise
	CheckValues    bool
}

// NewAppendCall gives a call with unit scales.
func NewAppendCall() AppendCall { return AppendCall{KScale: 1, VScale: 1} }

// Op is "append_kv".
func (c *AppendCall) Op() string { return "append_kv" }

// Run gives the call to b.
func (c *AppendCall) Run(b Backend) error { return b.Append(c) }

// RoPE tells whether keys are turned.
func (c *AppendCall) RoPE() bool { return c.RoPEConfig != (RoPEConfig{}) }

// Infer checks the call and describes QueryOut where there is a query. The caches are written in place.
func (c *AppendCall) Infer() error {
	k := checker{op: "append_kv"}
	ok := k.tensor("kv_cache", &c.KeyCache, 4, F32, F16, BF16, E4M3)
	ok = k.tensor("kv_cache", &c.ValueCache, 4, F32, F16, BF16, E4M3) && ok
	ok = k.tensor("k", &c.Key, 3, F32, F16, BF16, E4M3) && ok
	ok = k.tensor("v", &c.Value, 3, F32, F16, BF16, E4M3) && ok
	ok = k.tensor("block_tables", &c.BlockTables, 2, I32) && ok
	byRow := c.Positions.Valid() || c.Requests.Valid()
	if byRow == (c.CumSeqLens.Valid() || c.StartPositions.Valid()) {
		k.add(ErrArgument, "positions", "positions with requests, or cum_seq_lens with start_positions", "both or neither")
		return k.err()
	}
	if byRow {
		ok = k.tensor("positions", &c.Positions, 1, I32) && ok
		ok = k.tensor("requests", &c.Requests, 1, I32) && ok
	} else {
		ok = k.tensor("cum_seq_lens", &c.CumSeqLens, 1, I32) && ok
		ok = k.tensor("start_positions", &c.StartPositions, 1, I32) && ok
	}
	ok = k.optional("factors", &c.Factors, 1, F32) && ok
	ok = k.optional("query", &c.Query, 3, c.Key.DType) && ok
	k.factor("k_scale", c.KScale)
	k.factor("v_scale", c.VScale)
	switch {
	case c.RoPE():
		c.scalars(&k)
		if c.Key.DType == E4M3 {
			k.add(ErrDType, "k", "float32, float16 or bfloat16 with RoPE", "%v", E4M3)
		}
	case c.Query.Valid():
		k.add(ErrArgument, "query", "RoPE with it", "no base")
	case c.Factors.Valid():
		k.add(ErrArgument, "factors", "RoPE with them", "no base")
	}
	if !ok {
		return k.err()
	}
	dt := c.KeyCache.DType
	if c.ValueCache.DType != dt {
		k.add(ErrDType, "kv_cache", "K and V of one dtype", "%v and %v", dt, c.ValueCache.DType)
	}
	if c.Key.DType != c.Value.DType {
		k.add(ErrDType, "v", "the dtype of k", "%v and %v", c.Value.DType, c.Key.DType)
	}
	if c.Key.DType == E4M3 && dt != E4M3 {
		k.add(ErrDType, "k", "float32, float16 or bfloat16", "%v for a %v cache", c.Key.DType, dt)
	}
	if dt != E4M3 && (c.KScale != 1 || c.VScale != 1) {
		k.add(ErrArgument, "k_scale", "1 unless the cache is float8_e4m3", "%v and %v", c.KScale, c.VScale)
	}
	pagedPair(&k, "kv_cache", "kv_cache", &c.KeyCache, &c.ValueCache)
	t, h := c.Key.Shape[0], c.KeyCache.Shape[1]
	k.shape("k", &c.Key, -1, h, c.KeyCache.Shape[3])
	k.shape("v", &c.Value, t, h, c.ValueCache.Shape[3])
	k.unitLast("k", &c.Key)
	k.unitLast("v", &c.Value)
	k.unitLast("block_tables", &c.BlockTables)
	k.shape("positions", &c.Positions, t)
	k.shape("requests", &c.Requests, t)
	k.packed("positions", &c.Positions)
	k.packed("requests", &c.Requests)
	k.packed("cum_seq_lens", &c.CumSeqLens)
	k.packed("start_positions", &c.StartPositions)
	if !byRow {
		k.shape("cum_seq_lens", &c.CumSeqLens, c.BlockTables.Shape[0]+1)
		k.shape("start_positions", &c.StartPositions, c.BlockTables.Shape[0])
		if c.BlockTables.Shape[0] == 0 && t > 0 {
			k.add(ErrShape, "cum_seq_lens", "requests for the rows of k", "none for %d rows", t)
		}
	}
	if c.RoPE() {
		c.head(&k, c.Key.Shape[2], &c.Factors)
	}
	read := c.read()
	k.shape("query", &c.Query, t, -1, c.Key.Shape[2])
	k.unitLast("query", &c.Query)
	if c.Query.Valid() && k.ok() {
		k.output("query_out", &c.QueryOut, c.Query.DType, t, c.Query.Shape[1], c.Query.Shape[2])
		k.inPlace("query_out", &c.QueryOut, named{"query", &c.Query})
		k.apart("query_out", &c.QueryOut, read[:]...)
	}
	for _, cache := range [...]*Tensor{&c.KeyCache, &c.ValueCache} {
		k.apart("kv_cache", cache, named{"query", &c.Query}, named{"query_out", &c.QueryOut})
		k.apart("kv_cache", cache, read[:]...)
	}
	return k.err()
}

// read lists what is only read.
func (c *AppendCall) read() [8]named {
	return [...]named{{"k", &c.Key}, {"v", &c.Value}, {"block_tables", &c.BlockTables}, {"positions", &c.Positions}, {"requests", &c.Requests},
		{"cum_seq_lens", &c.CumSeqLens}, {"start_positions", &c.StartPositions}, {"factors", &c.Factors}}
}
