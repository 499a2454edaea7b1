package cudaops

import (
	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// The kernels' parameters: the structs of kernels/params.h, which says what their fields mean. A test holds each field's place, size
// and name against that file.

// elementTypes are enum ElementType of params.h: the dtypes that a kernel chooses when it runs.
var elementTypes = [...]int32{attn.F16: typeF16, attn.BF16: typeBF16, attn.E4M3: typeE4M3, attn.U8: typeNVFP4}

const (
	typeNone = iota // the kernel's own
	typeF16
	typeBF16
	typeE4M3
	typeNVFP4
)

type decodeParams struct {
	Q, K, V, BlockTables, SeqLens, CumSeqLensQ             driver.Addr
	Mask, Sinks, BMM1ScaleAt, BMM2ScaleAt, Out, OutScale   driver.Addr
	LSE, LSE2, Workspace, Counters, Fault                  driver.Addr
	QToken, QHead, KPage, KHead, KToken, VPage             int64
	VHead, VToken, TableRow, Tokens, Pages                 int64
	BMM1Scale, BMM2Scale, OutSFScale                       float32
	OutSFStart, OutSFColumns, Batch, QHeads, KVHeads, QLen int32
	MaxQLen, PageSize, MaxPages, MaxSeqLen, WindowLeft     int32
	MinUnits, QType, OutType, Group                        int32
	GroupMul, GroupShift, PageMul, PageShift               uint32
	Op                                                     uint32
}

type prefillParams struct {
	KMap, VMap                                                               [16]uint64
	Q, K, V, BlockTables, QLens, KVLens                                      driver.Addr
	OffsetsQ, OffsetsO, OffsetsK, OffsetsV, OffsetsStats, QScale             driver.Addr
	KScale, VScale, Out, LSE, LSE2, Counters                                 driver.Addr
	Fault                                                                    driver.Addr
	QToken, QHead, KPage, KHead, KToken, VPage                               int64
	VHead, VToken, TableRow, Tokens, KVTokens, Pages                         int64
	Scale                                                                    float32
	Batch, QHeads, KVHeads, PageSize, MaxPages, MaxQLen                      int32
	MaxKVLen, Causal, OffsetBytesQ, OffsetBytesO, OffsetBytesK, OffsetBytesV int32
	OffsetBytesStats, BoxRows, OutType                                       int32
	Op                                                                       uint32
	_                                                                        uint32
}

type appendParams struct {
	appendOperands
	Turns [256]float64
}

// appendOperands is what changes from launch to launch: the rest is large, and made once for many of them.
type appendOperands struct {
	K, V, KCache, VCache, BlockTables, Positions            driver.Addr
	Requests, CumSeqLens, StartPositions, Q, QOut, Factors  driver.Addr
	Fault                                                   driver.Addr
	KRowToken, KRowHead, VRowToken, VRowHead, QToken, QHead int64
	KPage, KHead, KToken, VPage, VHead, VToken              int64
	TableRow, Tokens, Pages                                 int64
	KScale, VScale                                          float32
	Batch, QHeads, KVHeads, KDim, VDim, PageSize            int32
	MaxPages, Rotary, Adjacent                              int32
	Op                                                      uint32
}

type ropeParams struct {
	ropeOperands
	Turns [256]float64
}

// ropeOperands is to ropeParams what appendOperands is to appendParams.
type ropeOperands struct {
	X, Positions, Factors, Out, Fault driver.Addr
	XToken, XHead, Tokens             int64
	Heads, HeadDim, Rotary, Adjacent  int32
	Op                                uint32
	_                                 uint32
}

type rmsNormParams struct {
	X, Residual, Weight, Out, Sum driver.Addr
	XRow, ResidualRow, Rows       int64
	Columns, WeightF32            int32
	Eps                           float32
	_                             uint32
}

type siluMulParams struct {
	Gate, Up, Out                 driver.Addr
	GateRow, UpRow, Rows, Columns int64
}

type embeddingParams struct {
	IDs, Weight, Out, Fault         driver.Addr
	WeightRow, Rows, Columns, Vocab int64
	Op                              uint32
	_                               uint32
}

type castParams struct {
	X, Out driver.Addr
	N      int64
}

type argmaxParams struct {
	X, Out              driver.Addr
	XRow, Rows, Columns int64
}

type softmaxParams struct {
	Logits, Out              driver.Addr
	LogitsRow, Rows, Columns int64
	Scale                    float32
	_                        uint32
}

type topKParams struct {
	Logits, Values, Indices  driver.Addr
	LogitsRow, Rows, Columns int64
	K                        int32
	_                        uint32
}

type mergeLSEParams struct {
	OutA, OutB, LSEA, LSEB, Out, LSE                   driver.Addr
	AToken, AHead, BToken, BHead, LSEAToken, LSEBToken int64
	Tokens                                             int64
	Heads, HeadDim                                     int32
}

type linearParams struct {
	X, Weight, Bias, Out  driver.Addr
	XRow, WeightRow, Rows int64
	In, OutDim, BiasF32   int32
	_                     uint32
}

type matMulParams struct {
	A, B, C                         driver.Addr
	ARow, ACol, BRow, BCol, CRow, M int64
	N, K                            int64
}

type binaryParams struct {
	A, B, Out                          driver.Addr
	Shape, AStride, BStride, OutStride [4]int64
	Op, Contiguous                     int32
}

type copyParams struct {
	X, Out                    driver.Addr
	Shape, XStride, OutStride [4]int64
}

type fillParams struct {
	Out   driver.Addr
	N     int64
	Value uint32
	_     uint32
}
