// Command build compiles ../*.cu into ../bin and writes the manifest. It compiles only what has changed; -all compiles everything.
//
//	go run ./cudaops/kernels/build
package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gaze-ml/gaze/cudaops/kernels"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kernels: ")
	dir := flag.String("dir", "cudaops/kernels", "folder of the sources")
	all := flag.Bool("all", false, "compile what has not changed too")
	flag.Parse()
	if err := makeAll(*dir, *all); err != nil {
		log.Fatal(err)
	}
}

func makeAll(dir string, all bool) error {
	c, err := findCompiler(dir)
	if err != nil {
		return err
	}
	old, err := kernels.ReadManifest(os.DirFS(filepath.Join(dir, "bin")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sources, err := kernels.ReadSources(os.DirFS(dir))
	if err != nil {
		return err
	}
	m := kernels.Manifest{Compiler: c.version, Flags: kernels.Flags, Sources: sources.Hashes()}
	for source := range sources {
		if filepath.Ext(source) != ".cu" {
			continue
		}
		for _, t := range kernels.TargetsOf(source) {
			m.Images = append(m.Images, kernels.Image{File: kernels.FileOf(source, t), Source: source, Target: t.Name, Flags: t.Flags,
				Inputs: sources.Inputs(c.version, source, t)})
		}
	}
	slices.SortFunc(m.Images, func(a, b kernels.Image) int { return strings.Compare(a.File, b.File) })

	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	errs := make([]error, len(m.Images))
	for i := range m.Images {
		im := &m.Images[i]
		if !all && unchanged(dir, old, im) {
			continue
		}
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			fmt.Println(im.File)
			errs[i] = c.build(dir, im)
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := removeOthers(filepath.Join(dir, "bin"), m.Images); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bin", kernels.ManifestFile), append(b, '\n'), 0o644)
}

// unchanged tells whether bin holds what im's inputs give, and completes im from the old manifest.
func unchanged(dir string, old *kernels.Manifest, im *kernels.Image) bool {
	i := slices.IndexFunc(old.Images, func(o kernels.Image) bool { return o.File == im.File && o.Inputs == im.Inputs })
	if i < 0 {
		return false
	}
	f, err := os.Open(filepath.Join(dir, "bin", im.File+kernels.Packed))
	if err != nil {
		return false
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return false
	}
	b, err := io.ReadAll(z)
	if err != nil || kernels.Sum(b) != old.Images[i].SHA256 {
		return false
	}
	im.SHA256 = old.Images[i].SHA256
	im.Entries, err = kernels.Inspect(b)
	return err == nil
}

// removeOthers deletes images whose sources are gone.
func removeOthers(bin string, keep []kernels.Image) error {
	es, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range es {
		made := slices.ContainsFunc(keep, func(i kernels.Image) bool { return i.File+kernels.Packed == e.Name() })
		if !made && e.Name() != kernels.ManifestFile {
			if err := os.Remove(filepath.Join(bin, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
