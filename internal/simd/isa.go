package simd

// ISA names an instruction set that kernels of this module are written for.
type ISA uint8

const (
	Portable ISA = iota // plain Go, everywhere
	AVX2                // amd64 with AVX2, FMA and F16C
	AVX512              // amd64 with, in addition, AVX-512 F, BW, DQ and VL
)

func (i ISA) String() string { return [...]string{"portable", "avx2", "avx512"}[i] }

var (
	best   = detect()
	active = best
)

// Active returns the instruction set in use: the best one available unless [Use] chose another.
func Active() ISA { return active }

// Available lists the instruction sets this machine and this build can run, [Portable] first.
func Available() []ISA { return []ISA{Portable, AVX2, AVX512}[:best+1] }

// Use makes every kernel that asks [Active] take the version for i, which must be available, until restore is called. It is for
// tests and benchmarks: it must not run beside kernels.
func Use(i ISA) (restore func()) {
	if i > best {
		panic("simd: " + i.String() + " is not available here")
	}
	old := active
	active = i
	return func() { active = old }
}
