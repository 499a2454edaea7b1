package cudaops

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gaze-ml/gaze/cudaops/kernels"
	"github.com/gaze-ml/gaze/internal/attn"
)

// Config is what this program can do with CUDA, as [ShowConfig] writes it.
type Config struct {
	Devices  []Properties `json:"devices"`
	NoDevice string       `json:"no_device,omitempty"` // why there is none
	Compiler string       `json:"compiler"`            // of the embedded kernels
	Kernels  []KernelInfo `json:"kernels"`
}

// KernelInfo is one row of the table from which kernels are chosen.
type KernelInfo struct {
	Op      string   `json:"op"`
	DType   string   `json:"dtype,omitempty"`    // of the first operand
	With    string   `json:"with,omitempty"`     // of the cache, the weights or the output, where kernels differ in it
	Outs    []string `json:"outs,omitempty"`     // attention: dtypes of the output
	HeadDim int      `json:"head_dim,omitempty"` // of q and K where V's differs
	ValDim  int      `json:"value_dim,omitempty"`
	Target  string   `json:"target"`
	MinSM   int      `json:"min_sm"`           // compute capability, major·10 + minor
	MaxSM   int      `json:"max_sm,omitempty"` // 0: every later one
	Symbol  string   `json:"symbol"`
	Threads int      `json:"threads"`                // of a block
	Shared  int      `json:"shared_bytes,omitempty"` // dynamic, of a block
	Tile    int      `json:"tile_rows,omitempty"`    // attention: rows that a block holds at a time; prefill by tensor copies: keys
}

// Describe gathers the devices, if any, and the embedded kernels.
func Describe() (Config, error) {
	m, err := kernels.Load()
	if err != nil {
		return Config{}, err
	}
	c := Config{Compiler: m.Compiler}
	if c.Devices, err = Devices(); err != nil {
		c.NoDevice = err.Error()
	}
	ks, err := table()
	if err != nil {
		return c, err
	}
	for _, k := range ks {
		i := KernelInfo{Op: k.Op, Outs: ofOuts(k), HeadDim: k.Dim, ValDim: k.DimV, Target: k.Target, MinSM: 80, Symbol: k.Symbol, Threads: k.Threads, Shared: k.Shared,
			Tile: k.Tile}
		if k.Target == "sm90a" {
			i.MinSM, i.MaxSM = 90, 90
		}
		switch {
		case k.A != attn.Invalid:
			i.DType = k.A.String()
		case k.Size > 0:
			i.DType = fmt.Sprintf("%d bytes", k.Size)
		}
		if k.B != attn.Invalid {
			i.With = k.B.String()
		}
		c.Kernels = append(c.Kernels, i)
	}
	return c, nil
}

// ShowConfig writes the devices and the kernels as text.
func ShowConfig(w io.Writer) error {
	c, err := Describe()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range c.Devices {
		fmt.Fprintln(t, d)
	}
	if c.NoDevice != "" {
		fmt.Fprintln(t, c.NoDevice)
	}
	fmt.Fprintf(t, "\nkernels by %s\nop\tdtypes\thead dim\tGPUs\tsymbol\tthreads\tshared\ttile\n", c.Compiler)
	for _, k := range c.Kernels {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", k.Op, k.dtypes(), k.dims(), k.gpus(), k.Symbol, k.Threads, k.Shared, k.Tile)
	}
	return t.Flush()
}

// ShowConfigJSON writes the same as JSON, a [Config].
func ShowConfigJSON(w io.Writer) error {
	c, err := Describe()
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(c)
}

func (k KernelInfo) dtypes() string {
	s := k.DType
	if k.With != "" && k.With != k.DType {
		s += " with " + k.With
	}
	return s + k.gives()
}

// gives is the outputs' dtypes where they are not the first operand's alone.
func (k KernelInfo) gives() string {
	if len(k.Outs) == 0 || slices.Equal(k.Outs, []string{k.DType}) {
		return ""
	}
	return " → " + strings.Join(k.Outs, ", ")
}

func (k KernelInfo) dims() string {
	switch {
	case k.HeadDim == 0:
		return "any"
	case k.ValDim == 0 || k.ValDim == k.HeadDim:
		return fmt.Sprint(k.HeadDim)
	}
	return fmt.Sprintf("%d/%d", k.HeadDim, k.ValDim)
}

func (k KernelInfo) gpus() string {
	if k.MaxSM == k.MinSM {
		return fmt.Sprintf("%d.%d", k.MinSM/10, k.MinSM%10)
	}
	return fmt.Sprintf("%d.%d and later", k.MinSM/10, k.MinSM%10)
}
