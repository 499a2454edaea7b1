package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gaze-ml/gaze/cudaops/kernels"
)

// compiler is the pinned nvcc.
type compiler struct{ path, version string }

// findCompiler looks where scripts/toolchain.py installs: under GAZE_CUDA, or .cache/cuda of the repository that holds dir.
func findCompiler(dir string) (compiler, error) {
	root := os.Getenv("GAZE_CUDA")
	if root == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return compiler{}, err
		}
		root = filepath.Join(abs, "..", "..", ".cache", "cuda")
	}
	c := compiler{path: filepath.Join(root, "nvidia", "cu13", "bin", "nvcc")}
	out, err := exec.Command(c.path, "--version").Output()
	if err != nil {
		return c, fmt.Errorf("no compiler: %w (run make toolchain)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	c.version = lines[len(lines)-1]
	return c, nil
}

// compile gives the image of one source in dir. The compiler runs in that folder and sees no path of it.
func (c compiler) compile(dir, source string, t kernels.Target) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "gaze-kernels-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "image")
	args := append([]string{}, kernels.Flags...)
	args = append(append(args, t.Flags...), "-DGAZE_TARGET="+t.Name, "-o", out, source)
	cmd := exec.Command(c.path, args...)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s for %s: %w\nnvcc %s\n%s", source, t.Name, err, strings.Join(args, " "), bytes.TrimSpace(said))
	}
	return os.ReadFile(out)
}

// build compiles im into bin and completes its record.
func (c compiler) build(dir string, im *kernels.Image) error {
	t, err := im.TargetOf()
	if err != nil {
		return err
	}
	b, err := c.compile(dir, im.Source, t)
	if err != nil {
		return err
	}
	im.SHA256 = kernels.Sum(b)
	if im.Entries, err = kernels.Inspect(b); err != nil {
		return fmt.Errorf("%s: %w", im.File, err)
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(b); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bin", im.File+kernels.Packed), packed.Bytes(), 0o644)
}
