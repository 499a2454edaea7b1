package cudaops

import (
	"encoding/binary"
	"fmt"

	"github.com/gaze-ml/gaze/internal/attn"
)

// The kernels' params.op: which op a fault record speaks of.
const (
	opDecode = 1 + iota
	opPrefill
	opAppend
	opRoPE
	opEmbedding
	opAppendRanges // append_kv by cum_seq_lens and start_positions
)

var opNames = map[uint32]string{opDecode: "decode", opPrefill: "prefill", opAppend: "append_kv", opRoPE: "rope", opEmbedding: "embedding",
	opAppendRanges: "append_kv"}

// fault is Fault of params.h.
type fault struct {
	Reason             uint32
	Op                 uint32
	Request, Got, Want int64
}

// The reasons, enum FaultReason of params.h.
const (
	faultNone = iota
	faultSeqLenNegative
	faultSeqLenTable
	faultSeqLenMax
	faultQLenMax
	faultQLenNegative
	faultQRows
	faultPage
	faultPosition
	faultRequest
	faultID
	faultKVRows
	faultOffsetQ
	faultOffsetO
	faultOffsetK
	faultOffsetV
	faultOffsetStats
)

// blame reads the fault record that came back with a wait, clears the device's, and gives its error or nil.
func (rt *Runtime) blame(record []byte) error {
	le := binary.LittleEndian
	f := fault{Reason: le.Uint32(record), Op: le.Uint32(record[4:]), Request: int64(le.Uint64(record[8:])), Got: int64(le.Uint64(record[16:])),
		Want: int64(le.Uint64(record[24:]))}
	if f.Reason == faultNone {
		return nil
	}
	if err := rt.ctx.Fill(rt.faults, 0, faultBytes); err != nil {
		return rt.fail("sync", err)
	}
	return f.error()
}

// error says it as the CPU backend does, which checks before the call.
func (f fault) error() error {
	decode := f.Op == opDecode
	pick := func(ofDecode, ofPrefill string) string {
		if decode {
			return ofDecode
		}
		return ofPrefill
	}
	seqLens, qLens := pick("seq_lens", "actual_seq_lens_kv"), pick("cum_seq_lens_q", "actual_seq_lens_q")
	positions, slots := "positions", "-1, or 0 to %d"
	if f.Op == opAppendRanges {
		qLens, positions, slots = "cum_seq_lens", "start_positions", "positions of 0 to %d for its rows"
	}
	fallen := fmt.Sprintf("prefix sums that never fall, after %d", f.Want)
	if f.Op == opPrefill {
		fallen = "0 or more"
	}
	arg, want, got := "", "", fmt.Sprintf("request %d: %d", f.Request, f.Got)
	switch f.Reason {
	case faultSeqLenNegative:
		arg, want = seqLens, "0 or more, below 2^31"
		if decode { // what is large in a uint32 is negative in a kernel's int32
			got = fmt.Sprintf("request %d: %d, %d as uint32", f.Request, f.Got, uint32(f.Got))
		}
	case faultSeqLenTable:
		arg, want = seqLens, fmt.Sprintf("0 to the block table's columns times the page size = %d", f.Want)
	case faultSeqLenMax:
		arg, want = seqLens, fmt.Sprintf("0 to %s = %d", pick("max_seq_len", "max_sequence_kv"), f.Want)
	case faultQLenMax:
		arg, want = pick("max_q_len", "actual_seq_lens_q"), fmt.Sprintf("0 to %s = %d", pick("max_q_len", "max_token_per_sequence"), f.Want)
	case faultQLenNegative:
		arg, want = qLens, fallen
	case faultQRows:
		arg, want = qLens, fmt.Sprintf("rows within the %d tokens given, all of them in decode", f.Want)
	case faultKVRows:
		arg, want = seqLens, fmt.Sprintf("a sum of at most the %d tokens of k_cache", f.Want)
	case faultPage:
		arg, want, got = "block_tables", fmt.Sprintf("pages 0 to %d", f.Want-1), fmt.Sprintf("request %d: page %d", f.Request, f.Got)
	case faultPosition:
		arg, want, got = positions, fmt.Sprintf(slots, f.Want-1), fmt.Sprintf("row %d: %d", f.Request, f.Got)
	case faultRequest:
		arg, want, got = "requests", fmt.Sprintf("0 to %d", f.Want-1), fmt.Sprintf("row %d: %d", f.Request, f.Got)
	case faultID:
		arg, want, got = "ids", fmt.Sprintf("0 to %d", f.Want-1), fmt.Sprintf("row %d: %d", f.Request, f.Got)
	case faultOffsetQ, faultOffsetO, faultOffsetK, faultOffsetV, faultOffsetStats:
		arg = map[uint32]string{faultOffsetQ: "batch_offsets_q", faultOffsetO: "batch_offsets_o", faultOffsetK: "batch_offsets_k",
			faultOffsetV: "batch_offsets_v", faultOffsetStats: "batch_offsets_stats"}[f.Reason]
		want = fmt.Sprintf("element offsets whose rows lie in the tensor: 0 to %d", f.Want)
	default:
		arg, want, got = "", "a reason that this build knows", fmt.Sprintf("fault %d of request %d: %d, want %d", f.Reason, f.Request, f.Got, f.Want)
	}
	return attn.Errorf(attn.ErrArgument, opNames[f.Op], arg, want, "%s", got)
}
