package kernels

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestManifest: the embedded images are those that the manifest tells of, and it tells of the sources as they are now.
func TestManifest(t *testing.T) {
	m, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := ReadSources(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if hashes := sources.Hashes(); !maps.Equal(hashes, m.Sources) {
		for name, sum := range hashes {
			if m.Sources[name] != sum {
				t.Errorf("%s has changed since `make kernels`", name)
			}
		}
		for name := range m.Sources {
			if hashes[name] == "" {
				t.Errorf("%s is gone since `make kernels`", name)
			}
		}
	}
	listed := map[string]bool{ManifestFile: true}
	for i := range m.Images {
		im := &m.Images[i]
		listed[im.File+Packed] = true
		target, err := im.TargetOf()
		if err != nil {
			t.Error(err)
			continue
		}
		if got := sources.Inputs(m.Compiler, im.Source, target); got != im.Inputs {
			t.Errorf("%s: made from other sources or with other flags", im.File)
		}
		b, err := unpack(im.File)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := Sum(b); got != im.SHA256 {
			t.Errorf("%s: SHA-256 %s, the manifest has %s", im.File, got, im.SHA256)
		}
		if es, err := Inspect(b); err != nil || !slices.Equal(es, im.Entries) {
			t.Errorf("%s: kernels %v, error %v, the manifest has %v", im.File, es, err, im.Entries)
		}
		for _, e := range im.Entries {
			if !strings.HasSuffix(e.Symbol, "_"+im.Target) {
				t.Errorf("%s: kernel %s wants the suffix _%s", im.File, e.Symbol, im.Target)
			}
		}
	}
	es, err := bin.ReadDir("bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		if !listed[e.Name()] {
			t.Errorf("bin/%s is not in the manifest", e.Name())
		}
	}
	made := map[string]bool{}
	for _, im := range m.Images {
		made[im.File] = true
	}
	for source := range sources {
		if path.Ext(source) != ".cu" {
			continue
		}
		for _, target := range TargetsOf(source) {
			if f := FileOf(source, target); !made[f] {
				t.Errorf("%s is missing, of %s", f, source)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	for source, want := range map[string]string{
		"rms_norm.cu":     "rms_norm_sm90a.cubin rms_norm_sm80.cubin rms_norm_sm80.ptx",
		"decode_sm90a.cu": "decode_sm90a.cubin",
		"decode_sm80.cu":  "decode_sm80.cubin decode_sm80.ptx",
	} {
		var got []string
		for _, target := range TargetsOf(source) {
			got = append(got, FileOf(source, target))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", source, got, want)
		}
	}
}

// TestInputs: an image depends on its source, on what that includes, directly or not, and on nothing else.
func TestInputs(t *testing.T) {
	base := Sources{"a.cu": []byte("#include \"b.cuh\"\n"), "b.cuh": []byte("  # include \"c.h\"\n#include <stdint.h>\n"), "c.h": []byte("#include \"b.cuh\"\n"),
		"other.cuh": []byte("x"), "other.cu": []byte("y")}
	if got := strings.Join(base.Of("a.cu"), " "); got != "a.cu b.cuh c.h" {
		t.Fatalf("a.cu is made of %s", got)
	}
	before := base.Inputs("nvcc", "a.cu", Targets[0])
	for name := range base {
		changed := maps.Clone(base)
		changed[name] = append([]byte("// more\n"), base[name]...)
		if same := changed.Inputs("nvcc", "a.cu", Targets[0]) == before; same != strings.HasPrefix(name, "other") {
			t.Errorf("%s has changed: same inputs %v", name, same)
		}
	}
	if base.Inputs("another", "a.cu", Targets[0]) == before || base.Inputs("nvcc", "a.cu", Targets[1]) == before {
		t.Error("compiler or target do not matter")
	}
}

// TestInspectRefuses: what is no image gives an error, not a panic.
func TestInspectRefuses(t *testing.T) {
	for _, image := range []string{"", "\x7fELF", "\x7fELF\x02\x01\x01", ".visible .entry f(.param .u64 a, .param .u64 b)", ".entry f(.param .u64 a)"} {
		if es, err := Inspect([]byte(image)); err == nil {
			t.Errorf("%q: %v, want an error", image, es)
		}
	}
}
