package cudaops

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// paramsOf gives the parameter struct of each op's kernels.
var paramsOf = map[string]any{
	"decode": decodeParams{}, "prefill": prefillParams{}, "append_kv": appendParams{}, "rope": ropeParams{}, "rms_norm": rmsNormParams{},
	"silu_mul": siluMulParams{}, "embedding": embeddingParams{}, "cast": castParams{}, "argmax": argmaxParams{}, "softmax": softmaxParams{}, "top_k": topKParams{}, "merge_lse": mergeLSEParams{}, "linear": linearParams{},
	opMatMul: matMulParams{}, opBinary: binaryParams{}, opCopy: copyParams{}, opFill: fillParams{},
}

func paramBytes(op string) int {
	if paramsOf[op] == nil {
		panic("paramsOf has no " + op)
	}
	return int(reflect.TypeOf(paramsOf[op]).Size())
}

// TestTable: every row's kernel is embedded and takes the struct that its op fills; every embedded kernel has a row.
func TestTable(t *testing.T) {
	m, err := kernels.Load()
	if err != nil {
		t.Fatal(err)
	}
	byRow := map[string]*kernel{}
	ks, err := allRows()
	if err != nil {
		t.Fatal(err)
	}
	type served struct {
		key
		target string
	}
	by := map[served]string{}
	for _, k := range ks {
		s := served{k.key, k.Target}
		if other := by[s]; other != "" {
			t.Errorf("%s and %s serve %+v", other, k.Symbol, k.key)
		}
		by[s] = k.Symbol
		if first := byRow[k.Symbol]; first != nil && first.Op != k.Op {
			t.Errorf("%s is for %s and for %s", k.Symbol, first.Op, k.Op)
		}
		byRow[k.Symbol] = k
		if attention := k.Op == "decode" || k.Op == "prefill"; attention != (len(k.Outs) > 0) {
			t.Errorf("%s has outputs %v", k.Symbol, k.Outs)
		}
	}
	carried := map[string]bool{}
	for _, im := range m.Images {
		for _, e := range im.Entries {
			carried[e.Symbol] = true
			k := byRow[e.Symbol]
			if k == nil {
				t.Errorf("%s: kernel %s has no row", im.File, e.Symbol)
				continue
			}
			if want := paramBytes(k.Op); e.Params != want {
				t.Errorf("%s: %s takes %d bytes, %T has %d", im.File, e.Symbol, e.Params, paramsOf[k.Op], want)
			}
		}
	}
	for symbol := range byRow {
		if !carried[symbol] {
			t.Errorf("row %s has no kernel", symbol)
		}
	}
}

// TestLaunchShapes: every shape of kernels/launch.h is that of the rows that are not there without it.
func TestLaunchShapes(t *testing.T) {
	shapes, err := kernels.LaunchShapes()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range shapes {
		target := name[strings.LastIndex(name, "_")+1:]
		others := maps.Clone(shapes)
		delete(others, name)
		left := map[key]bool{}
		for _, k := range rows(target, others) {
			left[k.key] = true
		}
		found := false
		for _, k := range rows(target, shapes) {
			if left[k.key] {
				continue
			}
			found = true
			if k.Threads != s[0] || k.Shared != s[1] || k.Tile != s[2] || k.PerSM != s[3] {
				t.Errorf("%s: %+v, launch.h has %v", name, k, s)
			}
		}
		if !found {
			t.Errorf("%s has no row", name)
		}
	}
}

// TestChoices: an H100 or H200 gets the tuned kernels, every other GPU from 8.0 on the portable ones, an older one none.
func TestChoices(t *testing.T) {
	forReal(t)
	for capability, target := range map[int]string{75: "", 80: "sm80", 86: "sm80", 89: "sm80", 90: "sm90a", 100: "sm80", 120: "sm80"} {
		c, err := choicesOf(capability, 227<<10)
		if err != nil {
			t.Fatal(err)
		}
		if (target == "") != (len(c.all) == 0) {
			t.Errorf("%d: %d kernels", capability, len(c.all))
		}
		for _, k := range c.all {
			if c.of(k.key) != k {
				t.Errorf("%d: another kernel than %s for its key", capability, k.Symbol)
			}
			other := k.key
			other.Dim += 7
			if found := c.of(other); found != nil {
				t.Errorf("%d: %s for %+v", capability, found.Symbol, other)
			}
			if k.Target != target {
				t.Errorf("%d: %s, want %s", capability, k.Symbol, target)
			}
			if _, _, err := embedded(k.Symbol, capability); err != nil {
				t.Errorf("%d: %v", capability, err)
			}
		}
	}
}

// TestSharedMemory: a kernel that needs more shared memory than the GPU has is no choice.
func TestSharedMemory(t *testing.T) {
	for _, shared := range []int{48 << 10, 99 << 10, 163 << 10} {
		c, err := choicesOf(80, shared)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range c.all {
			if k.Shared > shared {
				t.Errorf("%d bytes: %s wants %d", shared, k.Symbol, k.Shared)
			}
		}
	}
}

// TestShowConfig: text, JSON and Markdown name every kernel of the table, and say why there is no device.
func TestShowConfig(t *testing.T) {
	forReal(t)
	ks, err := table()
	if err != nil || len(ks) == 0 {
		t.Fatal(len(ks), err)
	}
	var text, js, md bytes.Buffer
	if err := ShowConfig(&text); err != nil {
		t.Fatal(err)
	}
	if err := ShowConfigJSON(&js); err != nil {
		t.Fatal(err)
	}
	if err := SupportTable(&md); err != nil {
		t.Fatal(err)
	}
	var c Config
	if err := json.Unmarshal(js.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Kernels) != len(ks) || (len(c.Devices) == 0) != (c.NoDevice != "") {
		t.Errorf("%d kernels of %d, %d devices, %q", len(c.Kernels), len(ks), len(c.Devices), c.NoDevice)
	}
	for i, k := range ks {
		if c.Kernels[i].Symbol != k.Symbol || !strings.Contains(text.String(), k.Symbol) || !strings.Contains(md.String(), "| "+cmp.Or(engineOps[k.Op], k.Op)+" |") && k.Op != opCopy && k.Op != opFill {
			t.Errorf("%s is missing", k.Symbol)
		}
	}
	if c.NoDevice != "" && !strings.Contains(text.String(), c.NoDevice) {
		t.Errorf("the text does not say %q", c.NoDevice)
	}
}
