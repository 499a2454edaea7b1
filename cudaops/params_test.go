package cudaops

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
)

// mirrors are the Go structs by their C names.
var mirrors = map[string]any{
	"Fault": fault{}, "DecodeParams": decodeParams{}, "PrefillParams": prefillParams{}, "AppendParams": appendParams{}, "RoPEParams": ropeParams{},
	"RMSNormParams": rmsNormParams{}, "SiLUMulParams": siluMulParams{}, "EmbeddingParams": embeddingParams{}, "ArgmaxParams": argmaxParams{},
	"CastParams": castParams{}, "SoftmaxParams": softmaxParams{}, "TopKParams": topKParams{},
	"MergeLSEParams": mergeLSEParams{}, "LinearParams": linearParams{}, "MatMulParams": matMulParams{}, "BinaryParams": binaryParams{},
	"CopyParams": copyParams{}, "FillParams": fillParams{},
}

// cField is a field as a C compiler for x86-64 lays it out.
type cField struct {
	name         string
	kind         reflect.Kind // of an element
	pointer      bool         // a device address
	count        int
	offset, size uintptr
}

var (
	comment  = regexp.MustCompile(`//[^\n]*`)
	cStruct  = regexp.MustCompile(`typedef struct \{([^}]*)\} (\w+);`)
	declared = regexp.MustCompile(`^(.*?[\s*])(\w+)(?:\[(\d+)\])?$`)
	cKinds   = map[string]reflect.Kind{"int64_t": reflect.Int64, "uint64_t": reflect.Uint64, "int32_t": reflect.Int32, "uint32_t": reflect.Uint32, "float": reflect.Float32,
		"double": reflect.Float64}
)

func parseStruct(t *testing.T, body string) (fs []cField, size uintptr) {
	t.Helper()
	align := uintptr(1)
	for decl := range strings.SplitSeq(body, ";") {
		decl = strings.Join(strings.Fields(decl), " ")
		if decl == "" {
			continue
		}
		m := declared.FindStringSubmatch(decl)
		if m == nil {
			t.Fatalf("declaration %q", decl)
		}
		f := cField{name: m[2], kind: reflect.Uint64, count: 1}
		if f.pointer = strings.Contains(m[1], "*"); !f.pointer {
			k, ok := cKinds[strings.TrimSpace(m[1])]
			if !ok {
				t.Fatalf("type of %q", decl)
			}
			f.kind = k
		}
		if m[3] != "" {
			f.count, _ = strconv.Atoi(m[3])
		}
		each := map[reflect.Kind]uintptr{reflect.Int32: 4, reflect.Uint32: 4, reflect.Float32: 4}[f.kind]
		if each == 0 {
			each = 8
		}
		align = max(align, each)
		f.offset = (size + each - 1) / each * each
		if f.offset != size {
			t.Errorf("a hole before %s", f.name)
		}
		f.size = each * uintptr(f.count)
		size = f.offset + f.size
		fs = append(fs, f)
	}
	return fs, (size + align - 1) / align * align
}

// fieldsOf are a struct's fields with those of a struct that it begins with.
func fieldsOf(g reflect.Type) (fs []reflect.StructField) {
	for i := range g.NumField() {
		if f := g.Field(i); f.Anonymous && f.Offset == 0 {
			fs = append(fs, fieldsOf(f.Type)...)
		} else {
			fs = append(fs, f)
		}
	}
	return fs
}

// TestParams: every struct of params.h has its Go mirror, with the same fields in the same places.
func TestParams(t *testing.T) {
	header, err := os.ReadFile("kernels/params.h")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range cStruct.FindAllStringSubmatch(comment.ReplaceAllString(string(header), ""), -1) {
		name := m[2]
		seen[name] = true
		mirror, ok := mirrors[name]
		if !ok {
			t.Errorf("%s has no mirror", name)
			continue
		}
		g := reflect.TypeOf(mirror)
		gfs := fieldsOf(g)
		fs, size := parseStruct(t, m[1])
		if g.Size() != size || len(gfs) != len(fs) {
			t.Errorf("%s: %d bytes in %d fields, in C %d in %d", name, g.Size(), len(gfs), size, len(fs))
			continue
		}
		for i, f := range fs {
			gf := gfs[i]
			want := strings.ReplaceAll(f.name, "_", "")
			if f.name == "reserved" {
				want = "_"
			}
			kind, count := gf.Type.Kind(), 1
			if kind == reflect.Array {
				kind, count = gf.Type.Elem().Kind(), gf.Type.Len()
			}
			if !strings.EqualFold(gf.Name, want) || gf.Offset != f.offset || gf.Type.Size() != f.size || kind != f.kind || count != f.count {
				t.Errorf("%s: field %d is %s %v at %d, in C %s, %d bytes at %d", name, i, gf.Name, gf.Type, gf.Offset, f.name, f.size, f.offset)
			}
			if f.pointer != (gf.Type == reflect.TypeFor[driver.Addr]()) {
				t.Errorf("%s: %s is a %v here, in C a pointer: %v", name, gf.Name, gf.Type, f.pointer)
			}
		}
	}
	for name := range mirrors {
		if !seen[name] {
			t.Errorf("params.h has no %s", name)
		}
	}
}

// TestEnums: the numbers that host and kernels share are the same on both sides, and every one is known here.
func TestEnums(t *testing.T) {
	header, err := os.ReadFile("kernels/params.h")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]int{
		"FAULT_NONE": faultNone, "FAULT_SEQ_LEN_NEGATIVE": faultSeqLenNegative, "FAULT_SEQ_LEN_TABLE": faultSeqLenTable,
		"FAULT_SEQ_LEN_MAX": faultSeqLenMax, "FAULT_Q_LEN_MAX": faultQLenMax, "FAULT_Q_LEN_NEGATIVE": faultQLenNegative,
		"FAULT_Q_ROWS": faultQRows, "FAULT_PAGE": faultPage, "FAULT_POSITION": faultPosition, "FAULT_REQUEST": faultRequest, "FAULT_ID": faultID,
		"FAULT_KV_ROWS": faultKVRows, "FAULT_OFFSET_Q": faultOffsetQ, "FAULT_OFFSET_O": faultOffsetO, "FAULT_OFFSET_K": faultOffsetK,
		"FAULT_OFFSET_V": faultOffsetV, "FAULT_OFFSET_STATS": faultOffsetStats,
		"TYPE_NONE": typeNone, "TYPE_F16": typeF16, "TYPE_BF16": typeBF16, "TYPE_E4M3": typeE4M3, "TYPE_NVFP4": typeNVFP4,
		"BINARY_ADD": binaryAdd, "BINARY_SUB": binarySub, "BINARY_MUL": binaryMul, "BINARY_DIV": binaryDiv,
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`\b((?:FAULT|TYPE|BINARY)_\w+) = (\d+)`).FindAllStringSubmatch(comment.ReplaceAllString(string(header), ""), -1) {
		found[m[1]] = true
		if n, ok := known[m[1]]; !ok || strconv.Itoa(n) != m[2] {
			t.Errorf("%s is %s in C, %d here (known: %v)", m[1], m[2], n, ok)
		}
	}
	for name := range known {
		if !found[name] {
			t.Errorf("params.h has no %s", name)
		}
	}
}

// TestDivisor: what decode kernels do instead of dividing is dividing, for every divisor and every number of theirs.
func TestDivisor(t *testing.T) {
	const most = math.MaxInt32
	rng := rand.New(rand.NewPCG(1, 2))
	var ds []int32
	for d := int32(1); d <= 300; d++ {
		ds = append(ds, d)
	}
	for shift := range 31 {
		power := int32(1) << shift
		ds = append(ds, power, max(1, power-1), power|1)
	}
	for range 1000 {
		ds = append(ds, 1+rng.Int32N(most))
	}
	for _, d := range append(ds, most, most-1) {
		mul, shift := divisor(d)
		for range 100 {
			times := int32(rng.Int64N(int64(most/d)+1)) * d // a multiple, beside which an error shows first
			for _, n := range []int32{times, max(times, 1) - 1, rng.Int32N(most), most} {
				if got := int32(uint64(2*uint32(n)) * uint64(mul) >> 32 >> shift); got != n/d {
					t.Fatalf("%d / %d = %d, not %d (multiplier %d, shift %d)", n, d, n/d, got, mul, shift)
				}
			}
		}
	}
}
