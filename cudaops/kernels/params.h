// Parameters of the CUDA kernels: one plain struct a kernel, passed by value as its only argument. Go mirrors every struct, and a
// test compares the offsets, so a field has a fixed size, lies on a multiple of it, and leaves no hole.
//
// Shapes: T query tokens, B requests, Hq and Hkv heads, G = Hq/Hkv, D head dim, P tokens a page, N pages, S_b keys and L_b query rows of
// request b. Strides count elements; the last dimension's is 1. A null pointer is an absent tensor. Outputs are contiguous.
#ifndef GAZE_PARAMS_H
#define GAZE_PARAMS_H

#include <stdint.h>

// Element types that a kernel chooses when it runs.
enum ElementType {
  TYPE_NONE = 0,  // the kernel's own
  TYPE_F16 = 1,
  TYPE_BF16 = 2,
  TYPE_E4M3 = 3,
  TYPE_NVFP4 = 4  // decode's output only: e2m1 pairs in out, e4m3 scales in out_scale
};

// What a kernel found in lengths, tables, offsets or ids that it may not follow. The first finding since the host cleared the record stays.
typedef struct {
  uint32_t reason;  // enum FaultReason, 0: none
  uint32_t op;      // the launch's params.op
  int64_t request;  // request or row
  int64_t got;      // the value
  int64_t want;     // its limit
} Fault;

enum FaultReason {
  FAULT_NONE = 0,
  FAULT_SEQ_LEN_NEGATIVE = 1,  // S_b < 0, or ≥ 2³¹ as uint32
  FAULT_SEQ_LEN_TABLE = 2,     // S_b > want = max_pages·P
  FAULT_SEQ_LEN_MAX = 3,       // S_b > want = max_seq_len
  FAULT_Q_LEN_MAX = 4,         // L_b > want = max_q_len
  FAULT_Q_LEN_NEGATIVE = 5,    // a falling prefix sum, or L_b < 0
  FAULT_Q_ROWS = 6,            // rows of request b end at got, beyond want = T; or the prefix sum does not start at 0 or end at T (request -1)
  FAULT_PAGE = 7,              // a used table entry got outside [0, want = N)
  FAULT_POSITION = 8,          // a position got outside [-1, want)
  FAULT_REQUEST = 9,           // a request got outside [0, want = B)
  FAULT_ID = 10,               // a token id got outside [0, want = V)
  FAULT_KV_ROWS = 11,          // ragged keys of request b end at got, beyond want = Tkv
  FAULT_OFFSET_Q = 12,         // batch_offsets_q[b] = got puts rows outside the tensor; want = the largest good offset
  FAULT_OFFSET_O = 13,
  FAULT_OFFSET_K = 14,
  FAULT_OFFSET_V = 15,
  FAULT_OFFSET_STATS = 16
};

// decode_h{D}_r{rows}_{q}_kv{kv}, or decode_h{D}_r{rows}_kve4m3 for every type of q and out beside an e4m3 cache: paged decode attention.
// Grid: any, best as many blocks a multiprocessor as launch.h says, which also has the threads of a block and the bytes of dynamic shared
// memory.
//
// The rows that share a KV head, r = i·G + g for query row i and head g of the group, are cut into tiles of 8, 16 or 32 (16 at most for D >
// 128), one kernel for each: the best holds G·max L in the fewest rows, or is the largest.
// workspace: 2·grid·rows·(D+2) floats, any content. counters: grid words, 0 before the first launch, left 0.
typedef struct {
  const void *q;                  // [T,Hq,D]
  const void *k;                  // [N,Hkv,P,D]
  const void *v;                  // [N,Hkv,P,D]
  const int32_t *block_tables;    // [B,max_pages], row stride table_row
  const int32_t *seq_lens;        // [B] S_b
  const int32_t *cum_seq_lens_q;  // [B+1], or null: L_b = q_len
  const uint16_t *mask;           // [B,L,2·ceil(L/32)] little-endian words, or null: causal
  const float *sinks;             // [Hq] logits
  const float *bmm1_scale_at;     // [1], wins over bmm1_scale
  const float *bmm2_scale_at;     // [1], wins over bmm2_scale
  void *out;                      // [T,Hq,D]
  void *out_scale;                // nvfp4 only: e4m3, 128×4 swizzled
  float *lse;                     // [T,Hq] natural logarithm
  float *lse2;                    // [T,Hq] base 2
  float *workspace;
  uint32_t *counters;
  Fault *fault;
  int64_t q_token;    // stride
  int64_t q_head;     // stride
  int64_t k_page;     // stride
  int64_t k_head;     // stride
  int64_t k_token;    // stride
  int64_t v_page;     // stride
  int64_t v_head;     // stride
  int64_t v_token;    // stride
  int64_t table_row;  // stride
  int64_t tokens;     // T
  int64_t pages;      // N
  float bmm1_scale;
  float bmm2_scale;
  float out_sf_scale;  // nvfp4 only
  int32_t out_sf_start;    // nvfp4 only: row of token 0 in out_scale
  int32_t out_sf_columns;  // nvfp4 only: columns of out_scale
  int32_t batch;           // B
  int32_t q_heads;         // Hq
  int32_t kv_heads;        // Hkv
  int32_t q_len;           // L without cum_seq_lens_q
  int32_t max_q_len;       // bound of L_b with cum_seq_lens_q
  int32_t page_size;       // P
  int32_t max_pages;       // columns of block_tables
  int32_t max_seq_len;     // bound of S_b
  int32_t window_left;     // -1: none
  int32_t min_units;       // spread work so thin that a block has this many units (16 tokens; 32 of e4m3 or D 64), not thinner; 0: the kernel's choice
  int32_t q_type;          // enum ElementType of q, where the cache is e4m3
  int32_t out_type;        // enum ElementType of out
  int32_t group;           // G
  uint32_t group_mul;      // n / G is n·2·group_mul >> 32 + group_shift for 0 ≤ n < 2^31, so that no kernel divides
  uint32_t group_shift;
  uint32_t page_mul;       // n / P likewise
  uint32_t page_shift;
  uint32_t op;
} DecodeParams;

// prefill_h{Dqk}[x{Dvo}]_{dtype}: attention over packed requests of varying lengths, keys paged or ragged. Grid: any number of blocks
// (they share the tiles), best 2 per multiprocessor for D ≤ 128. counters: 2 words, 0 before the first launch, left 0.
// lse and lse2 must be filled with -inf before (fill_f32): only rows of requests are written.
//
// prefill_h{Dqk}[x{Dvo}]_{dtype}_tma: the same on sm_90a by bulk tensor copies and warpgroup products, one block a multiprocessor, for keys
// whose base and strides are multiples of 16 bytes, pages of a multiple of 8 tokens, and no offsets_k or offsets_v. It reads K and V
// through CUtensorMaps of rank 4 made by the host: dims {D, P, Hkv, N}, or ragged {D, Tkv, Hkv, 1}; strides of token, head and page in
// bytes; box {64, box_rows, 1, 1}; 128-byte swizzle, no interleave, zeros outside.
typedef struct {
  uint64_t k_map[16];           // CUtensorMap, tma only
  uint64_t v_map[16];           // CUtensorMap, tma only
  const void *q;                // [T,Hq,Dqk]
  const void *k;                // paged [N,Hkv,P,Dqk], ragged [Tkv,Hkv,Dqk]
  const void *v;                // paged [N,Hkv,P,Dvo], ragged [Tkv,Hkv,Dvo]
  const int32_t *block_tables;  // [B,max_pages], or null: ragged
  const int32_t *q_lens;        // [B] L_b
  const int32_t *kv_lens;       // [B] S_b
  const void *offsets_q;        // [B] element offsets of each request's first row, int32 or int64 (offset_bytes); null: packed
  const void *offsets_o;
  const void *offsets_k;        // ragged only
  const void *offsets_v;        // ragged only
  const void *offsets_stats;    // [B] offsets into lse; null: dense, b·max_q_len·Hq
  const float *q_scale;         // [1] e4m3 only
  const float *k_scale;         // [1] e4m3 only
  const float *v_scale;         // [1] e4m3 only
  void *out;                    // [T,Hq,Dvo]; what lies past the last row of any request becomes 0
  float *lse;                   // [B,max_q_len,Hq] natural logarithm
  float *lse2;                  // [B,max_q_len,Hq] base 2
  uint32_t *counters;
  Fault *fault;
  int64_t q_token;    // stride
  int64_t q_head;     // stride
  int64_t k_page;     // stride, paged
  int64_t k_head;     // stride
  int64_t k_token;    // stride
  int64_t v_page;     // stride, paged
  int64_t v_head;     // stride
  int64_t v_token;    // stride
  int64_t table_row;  // stride
  int64_t tokens;     // T
  int64_t kv_tokens;  // Tkv, ragged
  int64_t pages;      // N, paged
  float scale;
  int32_t batch;         // B
  int32_t q_heads;       // Hq
  int32_t kv_heads;      // Hkv
  int32_t page_size;     // P, paged
  int32_t max_pages;     // columns of block_tables
  int32_t max_q_len;     // bound of L_b
  int32_t max_kv_len;    // bound of S_b
  int32_t causal;        // 0 or 1
  int32_t offset_bytes_q;      // 4 or 8, of offsets_q's elements
  int32_t offset_bytes_o;
  int32_t offset_bytes_k;
  int32_t offset_bytes_v;
  int32_t offset_bytes_stats;
  int32_t box_rows;            // tma only: paged the largest power of 2 that divides P and the keys of a block (launch.h); ragged that block
  int32_t out_type;            // enum ElementType of out
  uint32_t op;
  uint32_t reserved;           // to a multiple of 64 bytes
} PrefillParams;

// append_{rows}_{cache}: writes rows of new keys and values into a paged cache. Grid: any; 256 threads.
// With rotary > 0 keys are rotated on the way (RoPE), and q, if given, is rotated into q_out; at position -1 it is copied, a bad row is 0.
typedef struct {
  const void *k;                   // [T,Hkv,Dk]
  const void *v;                   // [T,Hkv,Dv]
  void *k_cache;                   // [N,Hkv,P,Dk]
  void *v_cache;                   // [N,Hkv,P,Dv]
  const int32_t *block_tables;     // [B,max_pages]
  const int32_t *positions;        // [T], -1: skip the row
  const int32_t *requests;         // [T]
  const int32_t *cum_seq_lens;     // [B+1], with start_positions instead of positions and requests
  const int32_t *start_positions;  // [B]
  const void *q;                   // [T,Hq,Dk], or null
  void *q_out;                     // [T,Hq,Dk]
  const float *factors;            // [rotary/2] divide the frequencies, or null
  Fault *fault;
  int64_t k_row_token;   // stride of k
  int64_t k_row_head;    // stride of k
  int64_t v_row_token;   // stride of v
  int64_t v_row_head;    // stride of v
  int64_t q_token;       // stride of q
  int64_t q_head;        // stride of q
  int64_t k_page;        // strides of the caches
  int64_t k_head;
  int64_t k_token;
  int64_t v_page;
  int64_t v_head;
  int64_t v_token;
  int64_t table_row;     // stride
  int64_t tokens;        // T
  int64_t pages;         // N
  float k_scale;         // e4m3 caches store sat(x/scale)
  float v_scale;
  int32_t batch;         // B
  int32_t q_heads;       // Hq, 0 without q
  int32_t kv_heads;      // Hkv
  int32_t k_dim;         // Dk
  int32_t v_dim;         // Dv
  int32_t page_size;     // P
  int32_t max_pages;     // columns of block_tables
  int32_t rotary;        // R, elements of a head that turn; 0: none
  int32_t adjacent;      // 1: 2i turns with 2i+1, 0: i with i+R/2
  uint32_t op;
  double turns[256];     // [R/2] turns (angle/2π) a position
} AppendParams;

// rope_{dtype}: rotary embedding of [T,H,D]. Grid: any; 256 threads. out may be x. Rows at position -1 are copied, below
// they are 0.
typedef struct {
  const void *x;             // [T,H,D]
  const int32_t *positions;  // [T]
  const float *factors;      // [R/2] divide the frequencies, or null
  void *out;                 // [T,H,D]
  Fault *fault;
  int64_t x_token;           // stride
  int64_t x_head;            // stride
  int64_t tokens;            // T
  int32_t heads;             // H
  int32_t head_dim;          // D
  int32_t rotary;            // R
  int32_t adjacent;          // 1: 2i turns with 2i+1, 0: i with i+R/2
  uint32_t op;
  uint32_t reserved;
  double turns[256];         // [R/2] turns (angle/2π) a position
} RoPEParams;

// rmsnorm_{dtype}: a block a row, any number of blocks, threads a multiple of 32. out and sum may be x or residual.
typedef struct {
  const void *x;         // [T,H]
  const void *residual;  // [T,H] or null
  const void *weight;    // [H], dtype of x, or f32
  void *out;             // [T,H]
  void *sum;             // [T,H] x + residual, or null
  int64_t x_row;         // stride
  int64_t residual_row;  // stride
  int64_t rows;          // T
  int32_t columns;       // H
  int32_t weight_f32;    // 1: weight is f32
  float eps;
  uint32_t reserved;
} RMSNormParams;

// silu_mul_{dtype}: out = gate/(1+exp(-gate))·up. Grid: any; 256 threads.
typedef struct {
  const void *gate;   // [T,I]
  const void *up;     // [T,I]
  void *out;          // [T,I]
  int64_t gate_row;   // stride
  int64_t up_row;     // stride
  int64_t rows;       // T
  int64_t columns;    // I
} SiLUMulParams;

// embedding_{weight}_{out}: rows of a table. Grid: any; 256 threads. A bad id gives a row of 0 and a fault.
typedef struct {
  const int32_t *ids;  // [T]
  const void *weight;  // [V,H]
  void *out;           // [T,H]
  Fault *fault;
  int64_t weight_row;  // stride
  int64_t rows;        // T
  int64_t columns;     // H
  int64_t vocab;       // V
  uint32_t op;
  uint32_t reserved;
} EmbeddingParams;

// cast_{x}_{out}: a copy to another dtype, rounded to nearest even. Grid: any; 256 threads.
typedef struct {
  const void *x;  // [n]
  void *out;      // [n]
  int64_t n;
} CastParams;

// argmax_{dtype}: index of the largest element of each row, the first among equals; NaN counts as less than everything.
// Grid: any; 1024 threads.
typedef struct {
  const void *x;    // [T,V]
  int32_t *out;     // [T]
  int64_t x_row;    // stride
  int64_t rows;     // T
  int64_t columns;  // V ≥ 1
} ArgmaxParams;

// softmax_{dtype}: probabilities of each row of logits. A row of nothing but -inf gives 0, NaN or +inf make their row NaN. out may be logits
// in f32. Grid: any; 1024 threads.
typedef struct {
  const void *logits;  // [T,V]
  float *out;          // [T,V]
  int64_t logits_row;  // stride
  int64_t rows;        // T
  int64_t columns;     // V ≥ 1
  float scale;         // log2(e)/temperature, a normal number
  uint32_t reserved;
} SoftmaxParams;

// topk_{dtype}: the k largest elements of each row in descending order, and their columns; of equals the lower column first; NaN counts as
// less than everything. Grid: any; 1024 threads.
typedef struct {
  const void *logits;  // [T,V]
  float *values;       // [T,k]
  int32_t *indices;    // [T,k]
  int64_t logits_row;  // stride
  int64_t rows;        // T
  int64_t columns;     // V, 1 to 2³¹-1
  int32_t k;           // 1 to V and 1024
  uint32_t reserved;
} TopKParams;

// merge_lse_{dtype}: attention over two disjoint sets of keys from their outputs and natural-log LSEs. Grid: any; 256 threads.
typedef struct {
  const void *out_a;    // [T,H,D]
  const void *out_b;    // [T,H,D]
  const float *lse_a;   // [T,H]
  const float *lse_b;   // [T,H]
  void *out;            // [T,H,D]
  float *lse;           // [T,H] or null
  int64_t a_token;      // strides
  int64_t a_head;
  int64_t b_token;
  int64_t b_head;
  int64_t lse_a_token;
  int64_t lse_b_token;
  int64_t tokens;       // T
  int32_t heads;        // H
  int32_t head_dim;     // D
} MergeLSEParams;

// gemv_{dtype} and gemm_{dtype}: out = x·wᵀ + bias with f32 sums. gemv: T ≤ 16, grid ceil(out/8)×1, 256 threads.
// gemm: grid ceil(out/128)×ceil(T/64), 128 threads.
typedef struct {
  const void *x;       // [T,In]
  const void *weight;  // [Out,In], dtype of x
  const void *bias;    // [Out], dtype of x, or f32, or null
  void *out;           // [T,Out]
  int64_t x_row;       // stride
  int64_t weight_row;  // stride
  int64_t rows;        // T
  int32_t in;          // In
  int32_t out_dim;     // Out
  int32_t bias_f32;    // 1: bias is f32
  uint32_t reserved;
} LinearParams;

// matmul_f32: c = a·b with any strides, for Gorgonia's MatMul. Grid ceil(N/64)×ceil(M/64), 256 threads.
typedef struct {
  const float *a;  // [M,K]
  const float *b;  // [K,N]
  float *c;        // [M,N]
  int64_t a_row;   // strides
  int64_t a_col;
  int64_t b_row;
  int64_t b_col;
  int64_t c_row;
  int64_t m;       // M
  int64_t n;       // N
  int64_t k;       // K
} MatMulParams;

enum BinaryOp { BINARY_ADD = 0, BINARY_SUB = 1, BINARY_MUL = 2, BINARY_DIV = 3 };

// binary_f32: out = a op b over up to 4 dimensions, for Gorgonia's Add, Sub, Mul (Hadamard) and Div. A stride of 0 repeats an element (a
// scalar: all strides 0). Grid: any; 256 threads. out may be a or b where their strides are the same.
typedef struct {
  const float *a;
  const float *b;
  float *out;
  int64_t shape[4];       // leading dimensions 1 where there are fewer
  int64_t a_stride[4];
  int64_t b_stride[4];
  int64_t out_stride[4];
  int32_t op;             // enum BinaryOp
  int32_t contiguous;     // 1: all three are contiguous and of one shape
} BinaryParams;

// copy_b{1,2,4,8}: out = x over up to 4 dimensions, elements of that many bytes: transposes, slices, strided copies. Grid: any; 256 threads.
typedef struct {
  const void *x;
  void *out;
  int64_t shape[4];       // leading dimensions 1 where there are fewer
  int64_t x_stride[4];
  int64_t out_stride[4];
} CopyParams;

// fill_b4: n words of one value (the bits of a float, say). Grid: any; 256 threads.
typedef struct {
  uint32_t *out;
  int64_t n;
  uint32_t value;
  uint32_t reserved;
} FillParams;

#endif
