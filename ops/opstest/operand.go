package opstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/gaze-ml/gaze/internal/attn"
)

var le = binary.LittleEndian

// guard is the number of poisoned bytes before and after every buffer.
const guard = 4 * alignment

// poisonByte fills what nobody may use: all ones are NaN in every float format, -1 as an integer.
const poisonByte = 0xff

// The ids that stand in unused table entries.
var absurdIDs = [2]int32{2147480000, -1}

// operand is one buffer of a call: what lies in it before, where the call's descriptor is, what came back.
type operand struct {
	arg    string
	bind   []*attn.Tensor // descriptors in the call that get this memory
	starts []int          // byte offsets of those descriptors' elements
	desc   attn.Tensor
	output bool // the call may write here, everywhere else it must not

	size     int // bytes, guards included
	segments []segment

	device unsafe.Pointer
}

// segment is a stretch of an operand that is really there. Ordinary operands have one; the huge ones of the cases about
// offsets have one for each page that is used, and the rest is never written.
type segment struct {
	off           int // from the start of the operand, guard included
	before, after []byte
}

// extent is the number of elements from the first to the last, by strides.
func extent(t *attn.Tensor) int {
	n := 1
	for i, d := range t.Shape[:t.Rank] {
		if d == 0 {
			return 0
		}
		n += (d - 1) * t.Stride[i]
	}
	return n
}

// newOperand makes a poisoned buffer for a descriptor and puts the descriptor into the call.
func newOperand(arg string, bind *attn.Tensor, desc attn.Tensor) *operand {
	o := &operand{arg: arg, desc: desc}
	o.view(bind, desc, 0)
	n := extent(&desc) * desc.DType.Size()
	o.size = n + 2*guard
	o.segments = []segment{{before: guarded(n)}}
	return o
}

// newSparseOperand makes an operand of which only the listed byte ranges, and the guards, exist.
func newSparseOperand(arg string, bind *attn.Tensor, desc attn.Tensor, ranges [][2]int) *operand {
	o := &operand{arg: arg, desc: desc}
	o.view(bind, desc, 0)
	o.size = extent(&desc)*desc.DType.Size() + 2*guard
	for _, r := range ranges {
		o.segments = append(o.segments, segment{off: r[0], before: guarded(r[1] - r[0])})
	}
	return o
}

// view lets another descriptor of the call look at the same memory from element start on.
func (o *operand) view(bind *attn.Tensor, desc attn.Tensor, start int) {
	*bind = desc
	o.bind, o.starts = append(o.bind, bind), append(o.starts, start*desc.DType.Size())
}

// guarded gives n poisoned bytes between two guards. The guards' pattern is NaN in the float formats too, but another one than
// a NaN that a kernel would compute.
func guarded(n int) []byte {
	b := bytes.Repeat([]byte{poisonByte}, n+2*guard)
	for i := range guard {
		g := byte(poisonByte)
		if i%2 == 1 {
			g = 0x7f
		}
		b[i], b[guard+n+i] = g, g
	}
	return b
}

// at gives n bytes from byte offset off of the tensor's first element.
func (o *operand) at(off, n int) []byte { return o.find(off, n, false) }

// got is at after the run.
func (o *operand) got(off, n int) []byte { return o.find(off, n, true) }

func (o *operand) find(off, n int, after bool) []byte {
	for i := range o.segments {
		s := &o.segments[i]
		if lo := off - s.off + guard; lo >= guard && lo+n+guard <= len(s.before) {
			if after {
				return s.after[lo : lo+n]
			}
			return s.before[lo : lo+n]
		}
	}
	panic(fmt.Sprintf("opstest: %s: no bytes %d to %d", o.arg, off, off+n))
}

// setInts writes integers of the operand's dtype from element i on.
func (o *operand) setInts(i int, v ...int) {
	for k, x := range v {
		switch b := o.at((i+k)*o.desc.DType.Size(), o.desc.DType.Size()); len(b) {
		case 8:
			le.PutUint64(b, uint64(int64(x)))
		case 4:
			le.PutUint32(b, uint32(int32(x)))
		case 2:
			le.PutUint16(b, uint16(x))
		}
	}
}

// floats gives the values of a packed output after the run.
func (o *operand) floats() []float64 {
	v := make([]float64, o.desc.Len())
	decodeRow(v, o.desc.DType, o.got(0, o.desc.Bytes()))
	return v
}

// bytesAfter is all of a packed output after the run.
func (o *operand) bytesAfter() []byte { return o.got(0, o.desc.Bytes()) }

// upload puts the operand into the target's memory and its address into the call.
func (o *operand) upload(m Memory) (err error) {
	if o.device, err = m.Alloc(o.size); err != nil {
		return err
	}
	for _, s := range o.segments {
		if err := m.Write(unsafe.Add(o.device, s.off), s.before); err != nil {
			return err
		}
	}
	for i, t := range o.bind {
		t.Ptr = unsafe.Add(o.device, guard+o.starts[i])
	}
	return nil
}

func (o *operand) download(m Memory) error {
	for i := range o.segments {
		s := &o.segments[i]
		if s.after == nil {
			s.after = make([]byte, len(s.before))
		}
		if err := m.Read(s.after, unsafe.Add(o.device, s.off)); err != nil {
			return err
		}
	}
	return nil
}

func (o *operand) free(m Memory) {
	if o.device != nil {
		m.Free(o.device)
		o.device = nil
	}
	for _, t := range o.bind {
		t.Ptr = nil
	}
}

// intact checks the guards and, for an input or for all operands of a refused call, every byte between them.
func (o *operand) intact(all bool) error {
	for _, s := range o.segments {
		n := len(s.before)
		if bytes.Equal(s.before, s.after) {
			continue
		}
		for i := range n {
			if s.before[i] == s.after[i] {
				continue
			}
			at := s.off + i - guard
			switch {
			case i < guard:
				return fmt.Errorf("%s: byte %d before the buffer was overwritten with %#x", o.arg, guard-i, s.after[i])
			case i >= n-guard:
				return fmt.Errorf("%s: byte %d past the end of the buffer was overwritten with %#x", o.arg, i-(n-guard), s.after[i])
			case all || !o.output:
				return fmt.Errorf("%s: byte %d changed from %#x to %#x", o.arg, at, s.before[i], s.after[i])
			}
		}
	}
	return nil
}
