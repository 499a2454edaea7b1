package cudaops

import (
	"encoding/binary"
	"math"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/internal/attn"
)

// The checks of lengths, tables and offsets before a launch, for calls with CheckValues: what the kernels find by themselves, found on
// the host, at the price of a wait.

// integers is an integer tensor's contents on the host.
type integers struct {
	bytes  []byte
	size   int
	signed bool
	stride int // of the first of two dimensions
}

func (v integers) at(i int) int64 {
	b := v.bytes[i*v.size:]
	switch {
	case v.size == 8:
		return int64(binary.LittleEndian.Uint64(b))
	case v.signed:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint32(b))
}

// bring copies an integer tensor to the host, after the work that was launched before.
func (rt *Runtime) bring(op, arg string, t *attn.Tensor) (integers, error) {
	v := integers{size: t.DType.Size(), signed: t.DType != attn.U32, stride: t.Stride[0]}
	if !t.Valid() {
		return v, nil
	}
	n, err := span(op, arg, t)
	if err != nil || n == 0 {
		return v, err
	}
	if a := driver.Of(t.Ptr); rt.memory.holds(a, n) {
		v.bytes = make([]byte, n)
		return v, rt.fail(op, rt.ctx.ToHost(v.bytes, a))
	}
	v.bytes = driver.Host(t.Ptr, n)
	return v, nil
}

// values brings several tensors and keeps the first error.
type values struct {
	rt  *Runtime
	op  string
	err error
}

func (rt *Runtime) values(op string) values { return values{rt: rt, op: op, err: rt.waiting(op)} }

func (v *values) of(arg string, t *attn.Tensor) integers {
	if v.err != nil {
		return integers{}
	}
	var got integers
	got, v.err = v.rt.bring(v.op, arg, t)
	return got
}

// judge gives the first fault's error.
func judge(op uint32, found fault) error {
	if found.Reason == faultNone {
		return nil
	}
	found.Op = op
	return found.error()
}

// checkPages wants the table entries of request b for positions from ≤ j < to to lie in [0, pages).
func checkPages(tables integers, b int, from, to int64, pageSize, pages int) fault {
	for n := from / int64(pageSize); n*int64(pageSize) < to; n++ {
		if e := tables.at(b*tables.stride + int(n)); e < 0 || e >= int64(pages) {
			return fault{faultPage, 0, int64(b), e, int64(pages)}
		}
	}
	return fault{}
}

// checkKeys wants 0 ≤ n ≤ both limits.
func checkKeys(b int, n, room, most int64) fault {
	switch {
	case n < 0 || n > math.MaxInt32:
		return fault{faultSeqLenNegative, 0, int64(b), int64(int32(n)), 0} // as a kernel sees it
	case n > room:
		return fault{faultSeqLenTable, 0, int64(b), n, room}
	case n > most:
		return fault{faultSeqLenMax, 0, int64(b), n, most}
	}
	return fault{}
}

// checkSums wants prefix sums that start at 0, never fall and end at total.
func checkSums(cum integers, batch int, total int64) fault {
	last := cum.at(0)
	if last != 0 {
		return fault{faultQRows, 0, -1, last, total}
	}
	for b := range batch {
		next := cum.at(b + 1)
		if next < last {
			return fault{faultQLenNegative, 0, int64(b), next, last}
		}
		last = next
	}
	if last != total {
		return fault{faultQRows, 0, -1, last, total}
	}
	return fault{}
}

func (rt *Runtime) checkDecode(c *attn.DecodeCall) error {
	v := rt.values(c.Op())
	lens, cum, tables := v.of("seq_lens", &c.SeqLens), v.of("cum_seq_lens_q", &c.CumSeqLensQ), v.of("block_tables", &c.BlockTables)
	if v.err != nil {
		return v.err
	}
	return judge(opDecode, decodeFault(c, lens, cum, tables))
}

func decodeFault(c *attn.DecodeCall, lens, cum, tables integers) fault {
	batch, l := c.Batch()
	if c.CumSeqLensQ.Valid() {
		if f := checkSums(cum, batch, int64(c.Query.Shape[0])); f.Reason != 0 {
			return f
		}
	}
	pageSize := c.Key.Shape[2]
	for b := range batch {
		rows := int64(l)
		if c.CumSeqLensQ.Valid() {
			if rows = cum.at(b+1) - cum.at(b); rows > int64(l) {
				return fault{faultQLenMax, 0, int64(b), rows, int64(l)}
			}
		}
		keys := lens.at(b)
		if f := checkKeys(b, keys, int64(c.BlockTables.Shape[1]*pageSize), int64(maxSeqLen(c))); f.Reason != 0 {
			return f
		}
		first := int64(0)
		if c.WindowLeft >= 0 {
			first = max(0, keys-rows-min(int64(c.WindowLeft), keys))
		}
		if rows > 0 {
			if f := checkPages(tables, b, first, keys, pageSize, c.Key.Shape[0]); f.Reason != 0 {
				return f
			}
		}
	}
	return fault{}
}

func (rt *Runtime) checkAppend(c *attn.AppendCall) error {
	v := rt.values(c.Op())
	tables, positions, requests := v.of("block_tables", &c.BlockTables), v.of("positions", &c.Positions), v.of("requests", &c.Requests)
	cum, starts := v.of("cum_seq_lens", &c.CumSeqLens), v.of("start_positions", &c.StartPositions)
	if v.err != nil {
		return v.err
	}
	return judge(rt.frame.append.Op, appendFault(c, tables, positions, requests, cum, starts))
}

func appendFault(c *attn.AppendCall, tables, positions, requests, cum, starts integers) fault {
	pageSize, pages := c.KeyCache.Shape[2], c.KeyCache.Shape[0]
	batch, room := c.BlockTables.Shape[0], int64(c.BlockTables.Shape[1]*pageSize)
	row := func(t int, pos, b int64) fault {
		switch {
		case pos == -1:
			return fault{}
		case pos < 0 || pos >= room:
			return fault{faultPosition, 0, int64(t), pos, room}
		case b < 0 || b >= int64(batch):
			return fault{faultRequest, 0, int64(t), b, int64(batch)}
		}
		return checkPages(tables, int(b), pos, pos+1, pageSize, pages)
	}
	if !c.CumSeqLens.Valid() {
		for t := range c.Key.Shape[0] {
			if f := row(t, positions.at(t), requests.at(t)); f.Reason != 0 {
				return f
			}
		}
		return fault{}
	}
	if f := checkSums(cum, batch, int64(c.Key.Shape[0])); f.Reason != 0 {
		return f
	}
	for b := range batch {
		for t := cum.at(b); t < cum.at(b+1); t++ {
			pos := starts.at(b) + t - cum.at(b)
			if pos < 0 {
				return fault{faultPosition, 0, t, pos, room}
			}
			if f := row(int(t), pos, int64(b)); f.Reason != 0 {
				return f
			}
		}
	}
	return fault{}
}
