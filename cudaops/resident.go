package cudaops

import "github.com/gaze-ml/gaze/cudaops/internal/driver"

// resident remembers which allocations operands were found in, for those who hold the Runtime's lock: the operands of a launch are nearly
// always those of an earlier one.
type resident struct {
	in    *blocks // the allocations at that time
	found [256]struct {
		a driver.Addr
		b block // nothing, for the address 0 of a slot that was never used
	}
}

// holds is o.holds. What it remembers ends with the allocations that it was found in: they are replaced whenever memory is given or taken
// back, and as long as r has the old ones nothing else can be in their place.
func (r *resident) holds(o *owned, a driver.Addr, n int) bool {
	now := o.now.Load()
	if r.in != now {
		*r = resident{in: now}
	}
	f := &r.found[spread(uint64(a))>>(64-8)]
	if f.a != a {
		b, ok := o.at(a)
		if !ok {
			return false
		}
		f.a, f.b = a, b
	}
	return f.b.holds(a, n)
}
