package cudaops

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// SupportTable writes the same in short, as a Markdown table: ops, dtypes of their first operand, with those of the cache, the weights or
// the output where kernels differ in them, and head dims. It is README's.
func SupportTable(w io.Writer) error {
	c, err := Describe()
	if err != nil {
		return err
	}
	type set = map[string]bool
	with, dims, gpus := map[string]map[string]set{}, map[string]set{}, map[string]set{}
	for _, k := range c.Kernels {
		if k.Op == opCopy || k.Op == opFill { // not ops of anybody's graph
			continue
		}
		if with[k.Op] == nil {
			with[k.Op], dims[k.Op], gpus[k.Op] = map[string]set{}, set{}, set{}
		}
		if with[k.Op][k.DType] == nil {
			with[k.Op][k.DType] = set{}
		}
		with[k.Op][k.DType][cmp.Or(k.With, k.DType)] = true
		dims[k.Op][k.dims()], gpus[k.Op][k.gpus()] = true, true
	}
	fmt.Fprint(w, "| op | dtypes | head dim | compute capability |\n|---|---|---|---|\n")
	for _, op := range slices.Sorted(maps.Keys(with)) {
		portable := slices.DeleteFunc(slices.Sorted(maps.Keys(gpus[op])), func(s string) bool {
			return len(gpus[op]) > 1 && !strings.Contains(s, "later") // a build of its own for a GPU that the portable one runs on too
		})
		sizes := slices.SortedFunc(maps.Keys(dims[op]), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s |\n", cmp.Or(engineOps[op], op), pairs(with[op]), strings.Join(sizes, ", "), strings.Join(portable, ", ")); err != nil {
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
