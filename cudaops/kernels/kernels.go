// Package kernels carries the compiled CUDA kernels and the record of how they were made. `make kernels` writes bin from the sources
// beside this file; programs embed it and need no compiler.
//
// Every source NAME.cu is compiled for each target, with GAZE_TARGET defined as the target's name, unless its own name ends with one
// (NAME_sm90a.cu), which is then its only target. A kernel takes one parameter, a struct of params.h by value, and its symbol ends
// with the target: decode_h128_r8_bf16_kvbf16_sm90a. Headers are *.h and *.cuh.
package kernels

import (
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed bin
var bin embed.FS

// Target is a kind of GPU that kernels are compiled for.
type Target struct {
	Name  string   // suffix of files and symbols
	Flags []string // nvcc's
	Ext   string   // ".cubin" runs on that generation, ".ptx" is compiled further by the driver
}

// Targets are sm_90a, tuned; sm_80, the portable build; and that one's PTX, for GPUs that came later.
var Targets = []Target{
	{"sm90a", []string{"-gencode=arch=compute_90a,code=sm_90a", "-cubin"}, ".cubin"},
	{"sm80", []string{"-gencode=arch=compute_80,code=sm_80", "-cubin"}, ".cubin"},
	{"sm80", []string{"-gencode=arch=compute_80,code=compute_80", "-ptx"}, ".ptx"},
}

// Flags are what every compilation gets besides its target's. No -lineinfo: it would put the folder's name into the code.
var Flags = []string{"-std=c++17", "-O3"}

// Manifest is bin/manifest.json.
type Manifest struct {
	Compiler string            `json:"compiler"` // nvcc's build line
	Flags    []string          `json:"flags"`
	Sources  map[string]string `json:"sources"` // file → SHA-256
	Images   []Image           `json:"images"`
}

// Image is one compiled file.
type Image struct {
	File    string   `json:"file"` // in bin, there with the ending Packed
	Source  string   `json:"source"`
	Target  string   `json:"target"`
	Flags   []string `json:"flags"`
	Inputs  string   `json:"inputs"` // SHA-256 of what it was made from: compiler, flags, source, headers
	SHA256  string   `json:"sha256"` // of the image, not of its packing
	Entries []Entry  `json:"kernels"`
}

// ManifestFile is the manifest's name in bin.
const ManifestFile = "manifest.json"

// Load reads the embedded manifest.
func Load() (*Manifest, error) {
	dir, err := fs.Sub(bin, "bin")
	if err != nil {
		return nil, err
	}
	return ReadManifest(dir)
}

// ReadManifest reads the manifest of a bin folder. The manifest is empty, never nil, where there is an error.
func ReadManifest(dir fs.FS) (*Manifest, error) {
	m := new(Manifest)
	b, err := fs.ReadFile(dir, ManifestFile)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, m)
}

// Bytes is an embedded image, which is kept compressed. PTX gets the zero byte at its end that the driver wants.
func Bytes(i *Image) ([]byte, error) {
	b, err := unpack(i.File)
	if err == nil && path.Ext(i.File) == ".ptx" {
		b = append(b, 0)
	}
	return b, err
}

// Packed is the ending of images in bin.
const Packed = ".gz"

func unpack(file string) ([]byte, error) {
	f, err := bin.Open(path.Join("bin", file+Packed))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// TargetOf is the target that i was compiled for.
func (i *Image) TargetOf() (Target, error) {
	for _, t := range Targets {
		if t.Name == i.Target && t.Ext == path.Ext(i.File) {
			return t, nil
		}
	}
	return Target{}, fmt.Errorf("%s: no target %s with %s", i.File, i.Target, path.Ext(i.File))
}

// IsSource tells whether a file of this folder takes part in compilation.
func IsSource(name string) bool {
	return slices.Contains([]string{".cu", ".cuh", ".h"}, path.Ext(name))
}

// TargetsOf are the targets of a source.
func TargetsOf(source string) []Target {
	base := strings.TrimSuffix(source, ".cu")
	var own []Target
	for _, t := range Targets {
		if strings.HasSuffix(base, "_"+t.Name) {
			own = append(own, t)
		}
	}
	if own != nil {
		return own
	}
	return Targets
}

// FileOf names the image of a source.
func FileOf(source string, t Target) string {
	base := strings.TrimSuffix(strings.TrimSuffix(source, ".cu"), "_"+t.Name)
	return base + "_" + t.Name + t.Ext
}

// Sources are the files of a folder that take part in compilation, by name.
type Sources map[string][]byte

// ReadSources reads them.
func ReadSources(dir fs.FS) (Sources, error) {
	es, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	s := Sources{}
	for _, e := range es {
		if !IsSource(e.Name()) {
			continue
		}
		if s[e.Name()], err = fs.ReadFile(dir, e.Name()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Hashes are the SHA-256 of each file.
func (s Sources) Hashes() map[string]string {
	h := map[string]string{}
	for name, text := range s {
		h[name] = Sum(text)
	}
	return h
}

var include = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)

// Of are a source and the headers that it includes, directly or not, in order of their names.
func (s Sources) Of(source string) []string {
	var all []string
	var visit func(string)
	visit = func(name string) {
		text, ok := s[name]
		if !ok || slices.Contains(all, name) {
			return
		}
		all = append(all, name)
		for _, m := range include.FindAllSubmatch(text, -1) {
			visit(string(m[1]))
		}
	}
	visit(source)
	slices.Sort(all)
	return all
}

// Inputs is the hash of all that decides how an image comes out.
func (s Sources) Inputs(compiler, source string, t Target) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q %q %s\n", compiler, Flags, t.Flags, t.Name)
	for _, name := range s.Of(source) {
		fmt.Fprintf(h, "%s %s\n", name, Sum(s[name]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sum is SHA-256 in hex.
func Sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Runs tells whether a GPU of that compute capability (major·10 + minor) loads the image: sm_90a code on 9.0 alone, the portable
// cubin on 8.x, its PTX on later ones.
func (i *Image) Runs(capability int) bool {
	switch {
	case i.Target == "sm90a":
		return capability == 90
	case path.Ext(i.File) == ".ptx":
		return capability >= 90
	}
	return capability/10 == 8
}
