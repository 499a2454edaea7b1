package main

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"time"
)

// What -bench times, as bench/peer_llama.py does.
const (
	benchPrompt = 512 // tokens of a prompt
	benchDecode = 128 // steps
	benchStart  = 8   // tokens of the prompt before those
)

// benchTokens is what the cache must hold.
func benchTokens(o options) int {
	pages := func(n int) int { return (n + o.pageSize - 1) / o.pageSize * o.pageSize }
	return max(pages(benchPrompt), o.parallel*pages(benchStart+benchDecode))
}

// benchmark prints lines that benchstat reads: the machine, the model and how it runs as configuration, then each phase again and again.
func (p *program) benchmark(ctx context.Context, o options, m engine) error {
	threads := o.threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	for _, c := range [][2]string{
		{"goos", runtime.GOOS}, {"goarch", runtime.GOARCH}, {"cpu", cpuName()}, {"model", filepath.Base(o.model)},
		{"device", o.device}, {"threads", fmt.Sprint(threads)}, {"kv-type", o.kvType},
	} {
		if _, err := fmt.Fprintf(p.stdout, "%s: %s\n", c[0], c[1]); err != nil {
			return err
		}
	}
	line := func(phase string, tokens int, d time.Duration) error {
		_, err := fmt.Fprintf(p.stdout, "BenchmarkLlama/%s/impl=gaze 1 %d ns/op %.1f tokens/s\n", phase, d.Nanoseconds(), float64(tokens)/d.Seconds())
		return err
	}
	for round := range o.rounds + 1 {
		prefill, err := m.TimePrefill(ctx, benchPrompt)
		if err != nil {
			return err
		}
		decode, err := m.TimeDecode(ctx, 1, benchDecode)
		if err != nil {
			return err
		}
		batch := decode
		if o.parallel > 1 {
			if batch, err = m.TimeDecode(ctx, o.parallel, benchDecode); err != nil {
				return err
			}
		}
		if round == 0 { // graphs are made, the file is read
			continue
		}
		if err := line(fmt.Sprintf("phase=prefill/tokens=%d", benchPrompt), benchPrompt, prefill); err != nil {
			return err
		}
		if err := line(fmt.Sprintf("phase=decode/tokens=%d", benchDecode), benchDecode, decode); err != nil {
			return err
		}
		if o.parallel > 1 {
			if err := line(fmt.Sprintf("phase=decode/tokens=%d/requests=%d", benchDecode, o.parallel), o.parallel*benchDecode, batch); err != nil {
				return err
			}
		}
	}
	return nil
}
