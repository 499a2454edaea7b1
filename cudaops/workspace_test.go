//go:build gpu && linux && amd64 && cgo

package cudaops

import (
	"testing"
	"unsafe"

	"github.com/gaze-ml/gaze/cudaops/internal/driver"
	"github.com/gaze-ml/gaze/cudaops/internal/fakecuda"
	"github.com/gaze-ml/gaze/internal/attn"
	"github.com/gaze-ml/gaze/ops"
)

// TestWorkspaces: for every decode kernel WorkspaceSize is what params.h says that the launch uses, to the byte, the Runtime's own
// workspace has room for it, and no launch has more blocks than there are counters.
func TestWorkspaces(t *testing.T) {
	for _, capability := range []int{80, 90} {
		gpu := fakecuda.Hopper
		gpu.Capability = capability
		rt := fake(t, gpu)
		own := device(t, rt, attn.U8, rt.workspace.bytes+8)
		for _, k := range rt.choices.all {
			if k.Op != "decode" || k.Rows != 8 { // of several heights a call picks its own
				continue
			}
			for _, of := range [][2]int{{1, 1}, {4, 2}, {5, 3}, {8, 4}, {64, 1}} { // G and L
				c := attn.NewDecodeCall()
				c.QLenPerReq = of[1]
				c.Query, c.OutDType = device(t, rt, k.A, of[1], of[0], k.Dim), k.Outs[0]
				c.Key, c.Value = device(t, rt, k.B, 1, 1, 16, k.Dim), device(t, rt, k.B, 1, 1, 16, k.Dim)
				c.BlockTables, c.SeqLens = int32s(t, rt, []int{1, 1}, 0), int32s(t, rt, []int{1}, 16)
				must(t, c.Infer())
				c.Out = device(t, rt, c.Out.DType, of[1], of[0], k.Dim)
				n, err := rt.Backend().WorkspaceSize(&c)
				must(t, err, rt.Backend().Decode(&c))
				l := fakecuda.Launches()[0]
				p := fakecuda.As[decodeParams](&l)
				tile := 0
				for _, o := range rt.choices.all {
					if o.Symbol == l.Symbol {
						tile = o.Tile
					}
				}
				if most, rows := mostRows(rt, k), of[0]*of[1]; tile < min(rows, most) || tile > max(8, 2*rows-1) {
					t.Errorf("%s: tiles of %d rows for %d, at most %d", l.Symbol, tile, rows, most)
				}
				if uses := 4 * 2 * int(l.Grid[0]) * tile * (k.Dim + 2); uses != n || n > rt.workspace.bytes || p.Workspace != rt.workspace.at {
					t.Errorf("%s, %d rows: %d bytes asked for, %d used, the Runtime has %d", k.Symbol, of[0]*of[1], n, uses, rt.workspace.bytes)
				}
				if counters := (prefillCounters - decodeCounters) / 4; int(l.Grid[0]) > counters {
					t.Errorf("%s: %d blocks for %d counters", k.Symbol, l.Grid[0], counters)
				}
				c.Workspace = attn.Of(attn.U8, n)
				c.Workspace.Ptr = own.Ptr
				must(t, rt.Backend().Decode(&c))
				l = fakecuda.Launches()[0]
				if p := fakecuda.As[decodeParams](&l); p.Workspace != driver.Of(c.Workspace.Ptr) || p.Counters != rt.counts+decodeCounters {
					t.Errorf("%s: workspace %#x, counters %#x", k.Symbol, p.Workspace, p.Counters)
				}
				c.Workspace.Shape[0]--
				want(t, k.Symbol+" with less", rt.Backend().Decode(&c), ops.ErrArgument, "workspace")
				c.Workspace.Shape[0]++
				c.Workspace.Ptr = unsafe.Add(own.Ptr, 8)
				want(t, k.Symbol+" between multiples of 16", rt.Backend().Decode(&c), ops.ErrArgument, "workspace", "multiple of 16")
				c.Workspace.Stride[0] = 2
				want(t, k.Symbol+" in every other byte", c.Infer(), ops.ErrShape, "workspace")
			}
		}
		must(t, rt.Close())
	}
}

// mostRows are those of the largest tile of a kernel's kind.
func mostRows(rt *Runtime, k *kernel) (most int) {
	for _, o := range rt.choices.all {
		like := o.key
		like.Rows = k.Rows
		if like == k.key {
			most = max(most, o.Tile)
		}
	}
	return most
}
