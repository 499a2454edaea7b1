package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/gaze-ml/gaze/examples/llama/gguf"
	"github.com/gaze-ml/gaze/examples/llama/model"
	"github.com/gaze-ml/gaze/graph"
	"github.com/gaze-ml/gaze/internal/simd"
	"github.com/gaze-ml/gaze/ops"
)

// configure chooses the sizes of the model, for the CPU where there is no device.
func configure(o options, h model.HParams, prompts []prompt, d graph.Device) model.Config {
	c := model.Config{Context: min(h.MaxContext, defaultContext), Requests: min(o.parallel, max(1, len(prompts))), PageSize: o.pageSize, Chunk: o.chunk, Threads: o.threads, Device: d}
	for _, t := range kvTypes {
		if t.name == o.kvType {
			c.KV = t.dtype
		}
	}
	if o.context > 0 {
		c.Context = o.context
	}
	if d != nil && o.logits == "" { // only what is needed leaves the device
		c.Candidates = o.sampling.Candidates()
	}
	if o.bench {
		c.Requests, c.Tokens = o.parallel, benchTokens(o)
		if d != nil {
			c.Candidates = 1
		}
	}
	if len(prompts) > 0 {
		c.Tokens = room(o, c, prompts)
	}
	if o.cache > 0 {
		c.Tokens = o.cache
	}
	return c
}

// room is how many tokens the cache must hold so that the prompts that need most can run at once. A context that was asked for is
// there for each of them.
func room(o options, c model.Config, prompts []prompt) (tokens int) {
	var needs []int
	for _, p := range prompts {
		n := c.Context
		if o.tokens > 0 && o.context == 0 {
			n = min(n, len(p.ids)+o.tokens)
		}
		needs = append(needs, (n+c.PageSize-1)/c.PageSize*c.PageSize)
	}
	slices.Sort(needs)
	for _, n := range needs[len(needs)-c.Requests:] {
		tokens += n
	}
	return tokens
}

// memoryError is a model that the machine can't hold.
type memoryError struct {
	Need   model.Memory
	Have   int64
	Source string // of Have
	Fits   int    // most tokens of cache that would fit, all prompts together
}

func (e *memoryError) Error() string {
	s := fmt.Sprintf("memory: got %s, want at most %s (%s)", &needs{e.Need}, size(e.Have), e.Source)
	if e.Fits > 0 {
		s += fmt.Sprintf(": a cache of %d tokens would fit (-ctx, -cache, -parallel, -kv-type)", e.Fits)
	}
	return s
}

// needs prints what a model needs.
type needs struct{ model.Memory }

func (n *needs) String() string {
	return fmt.Sprintf("%s: weights %s, KV cache %s, buffers %s", size(n.Total()), size(n.Weights), size(n.Cache), size(n.Buffers))
}

func size(bytes int64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
}

// affords refuses a model that needs more memory than there is, where that is known.
func (p *program) affords(need model.Memory, c model.Config) error {
	have, source := p.memory()
	if have <= 0 || need.Total() <= have || c.Device != nil { // which refuses by itself
		return nil
	}
	e := &memoryError{Need: need, Have: have, Source: source}
	if left := have - need.Weights - need.Buffers; left > 0 {
		page := float64(need.Cache) / float64(c.Pages())
		e.Fits = int(float64(left)/page) * c.PageSize
	}
	return e
}

// describe is what -v tells: what the model is, what was chosen for it, and why.
func (p *program) describe(f *gguf.File, h model.HParams, c model.Config, o options, need model.Memory, prompts []prompt) {
	line := func(what, format string, a ...any) {
		fmt.Fprintf(p.stderr, "%-8s"+format+"\n", append([]any{what}, a...)...)
	}
	because := func(given bool, flag, otherwise string) string {
		if given {
			return "-" + flag
		}
		return otherwise
	}
	elems, count := 0, map[gguf.Type]int{}
	for _, t := range f.Tensors {
		elems += t.Elems()
		count[t.Type]++
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		types = append(types, fmt.Sprintf("%v ×%d", t, count[t]))
	}
	name, err := gguf.GetOr(f, "general.name", "")
	if err != nil || name == "" {
		name = "no name"
	}
	line("model", "%s, %.1f million weights in %s: %s", name, float64(elems)/1e6, size(need.Weights), strings.Join(types, ", "))
	line("shape", "%d layers, hidden %d, feed-forward %d, heads %d/%d of %d, vocabulary %d", h.Layers, h.Hidden, h.FFN, h.Heads, h.KVHeads, h.HeadDim, h.Vocab)
	if s := h.RoPEScaling; s.Factor != 0 {
		line("rope", "base %v, scaled %+v", h.RoPEBase, s)
	}
	threads := c.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	if c.Device != nil {
		line("device", "%v", c.Device.Name())
	} else {
		line("device", "cpu: %v kernels, the best of %v here; %d threads (%s)", simd.Active(), simd.Available(), threads, because(o.threads > 0, "threads", "one for each core"))
	}
	line("context", "%d tokens (%s) of the model's %d", c.Context, because(o.context > 0, "ctx", fmt.Sprintf("the model's, at most %d", defaultContext)), h.MaxContext)
	line("cache", "%v (-kv-type), %d pages of %d tokens (%s)", ops.DTypeOf(c.KV), c.Pages(), c.PageSize,
		because(o.cache > 0, "cache", because(o.context > 0, "ctx", "what the prompts at once may need")))
	line("steps", "up to %d of %d prompts at once, up to %d prompt tokens a step", c.Requests, len(prompts), c.Chunk)
	have, source := p.memory()
	if have > 0 && c.Device == nil {
		line("memory", "%s, of %s (%s)", &needs{need}, size(have), source)
	} else {
		line("memory", "%s", &needs{need})
	}
	for _, one := range prompts {
		line("prompt", "%q, %d tokens: %v", one.text, len(one.ids), one.ids)
	}
}
