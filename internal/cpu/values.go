package cpu

import (
	"fmt"
	"math"

	"github.com/gaze-ml/gaze/internal/attn"
)

// The checks of what Infer can't see: pointers, and the values of lengths, tables, offsets and ids. All of them run
// before anything is written, and allocate only when something is wrong.

func bad(op, arg, want, got string, a ...any) error {
	return attn.Errorf(attn.ErrArgument, op, arg, want, got, a...)
}

// operand is one tensor of a call and its name in errors.
type operand struct {
	arg string
	t   *attn.Tensor
}

// present wants memory under every operand that was given and is not empty. An absent one passes: Infer knows what is optional.
func present(op string, operands ...operand) error {
	for _, o := range operands {
		if o.t.Valid() && o.t.Ptr == nil && o.t.Len() != 0 {
			return bad(op, o.arg, "a tensor with memory", "a nil pointer under %v", o.t.String())
		}
	}
	return nil
}

// required is present for operands that Infer fills in: a call that didn't pass it has none.
func required(op string, operands ...operand) error {
	for _, o := range operands {
		if !o.t.Valid() {
			return bad(op, o.arg, "a tensor: the call must have passed Infer", "nothing")
		}
	}
	return present(op, operands...)
}

// prefixSums wants cum [B+1] to start at 0, never to fall and to end at total.
func prefixSums(op, arg string, cum *attn.Tensor, total int) error {
	n := cum.Shape[0] - 1
	last := integer(cum, 0)
	if last != 0 {
		return bad(op, arg, "0 first", "%d", last)
	}
	for b := range n {
		next := integer(cum, b+1)
		if next < last {
			return bad(op, arg, "prefix sums that never fall", "request %d: %d after %d", b, next, last)
		}
		last = next
	}
	if last != total {
		return bad(op, arg, fmt.Sprintf("the number of tokens last, %d", total), "%d", last)
	}
	return nil
}

// length wants 0 ≤ n ≤ most.
func length(op, arg string, b, n, most int, limit string) error {
	if n < 0 || n > most {
		return bad(op, arg, fmt.Sprintf("0 to %s = %d", limit, most), "request %d: %d", b, n)
	}
	return nil
}

// tableEntries wants the entries of request b for positions from ≤ j < to to lie in [0, pages). No other entry is read.
func tableEntries(op string, tables *attn.Tensor, b, from, to, pageSize, pages int) error {
	if from >= to {
		return nil
	}
	first, last := from/pageSize, (to-1)/pageSize
	entries := slice[int32](tables.At(b*tables.Stride[0]+first), last-first+1)
	for i, e := range entries {
		if uint(e) >= uint(pages) {
			return bad(op, "block_tables", fmt.Sprintf("pages 0 to %d", pages-1), "request %d: page %d in column %d", b, e, first+i)
		}
	}
	return nil
}

// offsetOf gives request b's element offset and wants rows × heads rows of width elements behind it to lie in t. It looks at
// offsets that rows depend on only.
func offsetOf(op, arg string, offsets, t *attn.Tensor, b, rows int) (int, error) {
	off := integer(offsets, b)
	if rows == 0 {
		return off, nil
	}
	size := extent(t)
	need := (rows-1)*t.Stride[0] + (t.Shape[1]-1)*t.Stride[1] + t.Shape[2]
	if off < 0 || off > math.MaxInt-need || off+need > size {
		return 0, bad(op, arg, fmt.Sprintf("element offsets whose rows lie in the %d elements of %v", size, t.String()),
			"request %d: %d and %d rows", b, off, rows)
	}
	return off, nil
}
