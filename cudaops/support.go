package cudaops

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// SupportTable writes in short what [ShowConfig] does of the kernels, as a Markdown table: ops, dtypes of their first operand, with those of the cache, the weights or
// the output where kernels differ in them, and head dims. It is README's.
func SupportTable(w io.Writer) error {
	c, err := Describe()
	if err != nil {
		return err
	}
	type set = map[string]bool
	type line struct {
		with       map[string]set // dtypes of the first operand and what they go with
		dims, gpus set
	}
	type name struct{ op, gives string } // a line for each
	lines := map[name]line{}
	for _, k := range c.Kernels {
		if k.Op == opCopy || k.Op == opFill { // not ops of anybody's graph
			continue
		}
		n := name{k.Op, k.gives()}
		if lines[n].with == nil {
			lines[n] = line{map[string]set{}, set{}, set{}}
		}
		l := lines[n]
		if l.with[k.DType] == nil {
			l.with[k.DType] = set{}
		}
		l.with[k.DType][cmp.Or(k.With, k.DType)] = true
		l.dims[k.dims()], l.gpus[k.gpus()] = true, true
	}
	fmt.Fprint(w, "| op | dtypes (→ the output's) | head dim | compute capability |\n|---|---|---|---|\n")
	for _, n := range slices.SortedFunc(maps.Keys(lines), func(a, b name) int {
		return cmp.Or(strings.Compare(a.op, b.op), len(a.gives)-len(b.gives), strings.Compare(a.gives, b.gives))
	}) {
		l := lines[n]
		portable := slices.DeleteFunc(slices.Sorted(maps.Keys(l.gpus)), func(s string) bool {
			return len(l.gpus) > 1 && !strings.Contains(s, "later") // a build of its own for a GPU that the portable one runs on too
		})
		sizes := slices.SortedFunc(maps.Keys(l.dims), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		if _, err := fmt.Fprintf(w, "| %s | %s%s | %s | %s |\n", cmp.Or(engineOps[n.op], n.op), pairs(l.with), n.gives, strings.Join(sizes, ", "),
			strings.Join(portable, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// engineOps are Gorgonia's names of what the engine runs.
var engineOps = map[string]string{opBinary: "Gorgonia's Add, Sub, HadamardProd, HadamardDiv, Transpose", opMatMul: "Gorgonia's Mul"}

// pairs spells which dtypes go with which: "a, b" where each goes with itself, "a, b with c, d" where each of the ones goes with each of
// the others.
func pairs(with map[string]map[string]bool) string {
	groups := map[string][]string{} // dtypes by what they go with; "": themselves
	for _, d := range order(maps.Keys(with)) {
		key := ""
		if len(with[d]) != 1 || !with[d][d] {
			key = strings.Join(order(maps.Keys(with[d])), ", ")
		}
		groups[key] = append(groups[key], d)
	}
	var parts []string
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(groups))) {
		s := strings.Join(groups[key], ", ")
		if key != "" {
			s += " with " + key
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// order puts wide dtypes first.
func order(names func(func(string) bool)) []string {
	all := []string{"float32", "float16", "bfloat16", "float8_e4m3"}
	return slices.SortedFunc(names, func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
}
