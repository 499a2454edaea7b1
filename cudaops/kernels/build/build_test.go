package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// need gives the pinned compiler. Where it is not installed the test is skipped, but fails under make gpu-check, which installs it.
func need(t *testing.T) compiler {
	t.Helper()
	c, err := findCompiler("..")
	if err != nil {
		if os.Getenv("GAZE_REQUIRE_CUDA") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return c
}

// TestFoldersDoNotMatter: an image depends on what its source says, not on where the source lies.
func TestFoldersDoNotMatter(t *testing.T) {
	c := need(t)
	text, err := os.ReadFile("testdata/sample.cu")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range kernels.Targets {
		var images [][]byte
		for _, dir := range []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "another", "folder")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "sample.cu"), text, 0o644); err != nil {
				t.Fatal(err)
			}
			b, err := c.compile(dir, "sample.cu", target)
			if err != nil {
				t.Fatal(err)
			}
			images = append(images, b)
		}
		if !bytes.Equal(images[0], images[1]) {
			t.Errorf("%s%s: two folders gave two images", target.Name, target.Ext)
		}
		es, err := kernels.Inspect(images[0])
		if want := (kernels.Entry{Symbol: "scale_f32_" + target.Name, Params: 16}); err != nil || len(es) != 1 || es[0] != want {
			t.Errorf("%s%s: kernels %v, error %v, want %v", target.Name, target.Ext, es, err, want)
		}
	}
}

// TestCompilerComplains: a source that doesn't compile gives the compiler's words.
func TestCompilerComplains(t *testing.T) {
	c := need(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.cu"), []byte("__global__ void f() { nonsense; }"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.compile(dir, "bad.cu", kernels.Targets[0]); err == nil || !strings.Contains(err.Error(), `"nonsense" is undefined`) {
		t.Errorf("error %v, want the compiler's", err)
	}
}

// TestRebuild compiles one of the embedded images anew and compares it; which one depends on the commit, so that all have their
// turn.
func TestRebuild(t *testing.T) {
	c := need(t)
	m, err := kernels.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Images) == 0 {
		t.Fatal("no images: run make kernels")
	}
	if c.version != m.Compiler {
		t.Fatalf("the compiler is %q, the images are made by %q", c.version, m.Compiler)
	}
	im := &m.Images[turn(t)%uint64(len(m.Images))]
	t.Log(im.File)
	target, err := im.TargetOf()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.compile("..", im.Source, target)
	if err != nil {
		t.Fatal(err)
	}
	if got := kernels.Sum(b); got != im.SHA256 {
		t.Errorf("%s: rebuilt %s, embedded %s", im.File, got, im.SHA256)
	}
}

// turn is a number that the commit decides; 0 outside a repository.
func turn(t *testing.T) uint64 {
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Log("not a git repository: the first image")
		return 0
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b)
}

// TestKernelsWait: every kernel for sm_90a waits for the kernel before it (griddepcontrol.wait, ACQBULK in machine code). Launches
// overlap by default, and one that did not wait would read what is not written yet.
func TestKernelsWait(t *testing.T) {
	c := need(t)
	m, err := kernels.Load()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i := range m.Images {
		im := &m.Images[i]
		if im.Target != "sm90a" {
			continue
		}
		for _, f := range strings.Split(objdump(t, c, im, "-sass"), "Function : ")[1:] {
			name, _, _ := strings.Cut(f, "\n")
			checked++
			if !strings.Contains(f, "ACQBULK") {
				t.Errorf("%s: %s does not wait", im.File, name)
			}
		}
	}
	if checked == 0 {
		t.Error("no kernel for sm_90a")
	}
}

var update = flag.Bool("update", false, "write registers and stacks into ../README.md")

// TestReadmeRegisters: the table of ../README.md has the registers and stacks of the images that programs carry, those for bf16 where types differ.
func TestReadmeRegisters(t *testing.T) {
	c := need(t)
	m, err := kernels.Load()
	if err != nil {
		t.Fatal(err)
	}
	usage := regexp.MustCompile(`Function (\w+)_sm90a:\s+REG:(\d+) STACK:(\d+)`)
	registers, stacks := map[string]string{}, map[string]string{}
	for i := range m.Images {
		if m.Images[i].Target == "sm90a" {
			for _, u := range usage.FindAllStringSubmatch(objdump(t, c, &m.Images[i], "-res-usage"), -1) {
				registers[u[1]], stacks[u[1]] = u[2], u[3]
			}
		}
	}
	const path = "../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, rows := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		var have [2][]string
		for _, name := range symbols(strings.TrimPrefix(cells[0], "| ")) {
			if _, ok := registers[name]; ok {
				have[0], have[1] = append(have[0], registers[name]), append(have[1], stacks[name])
			}
		}
		if have[0] == nil {
			continue
		}
		rows++
		cells[1], cells[2] = strings.Join(have[0], ", "), strings.Join(have[1], ", ")
		if want := strings.Join(cells, " | "); *update {
			lines[i] = want
		} else if line != want {
			t.Errorf("README.md has\n%s\nwant (go test ./cudaops/kernels/build -run Readme -update)\n%s", line, want)
		}
	}
	if rows < 30 {
		t.Errorf("%d rows of README.md name kernels", rows)
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// symbols are the kernels that a row's name stands for, such as "decode_h64_r8_kve4m3, r16" or "prefill_h64_tma".
func symbols(name string) []string {
	var out []string
	first, rest, _ := strings.Cut(name, ", ")
	for _, rows := range append([]string{"r8"}, strings.Split(rest, ", ")...) {
		s := strings.Replace(first, "_r8", "_"+rows, 1)
		switch {
		case strings.HasPrefix(s, "decode") && !strings.HasSuffix(s, "e4m3"):
			s += "_bf16_kvbf16"
		case strings.HasSuffix(s, "_tma"):
			s = strings.TrimSuffix(s, "_tma") + "_bf16_tma"
		case strings.HasPrefix(s, "prefill") && !strings.HasSuffix(s, "e4m3"):
			s += "_bf16"
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// objdump is what cuobjdump says of an image.
func objdump(t *testing.T, c compiler, im *kernels.Image, what string) string {
	t.Helper()
	b, err := kernels.Bytes(im)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), im.File)
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(c.path), "cuobjdump"), what, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestEmulator: a host compiler, where there is one, takes every kernel with the headers of emu/, which try them without a GPU.
func TestEmulator(t *testing.T) {
	c := need(t)
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip(err)
	}
	sources, err := filepath.Glob("../*.cu")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no kernels: %v", err)
	}
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(gxx, "-std=c++17", "-fsyntax-only", "-w", "-fno-strict-aliasing", "-I", filepath.Join(filepath.Dir(c.path), "..", "include"), "-include", "../emu/emu.h",
				"-DGAZE_TARGET=sm90a", "-DGAZE_EMU_SM90", "-x", "c++", source).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
