package read

import (
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Needs is what an epoch requests from a service, and what memory or disk it takes to read each
// chunk once.
type Needs = choose.Needs

// planning returns the plan by which the storage is told what will be read. It is nil if the
// storage takes no hints, if all shards are compressed, and if the storage is a disk cache without
// room for the chunks that the order has open. A disk cache is also told how much passes through it.
func (f *Fetcher) planning() *window.Plan {
	hints := f.o.Caps.Hints
	if hints == nil {
		return nil
	}
	sizes := f.o.Survey.Sizes()
	use := hints.Use()
	keeps, gathers := use.Keeps, f.o.Choice.Strategy == spec.ReadGather
	if use.Exact {
		if !gathers {
			return nil
		}
		return &window.Plan{Hints: hints, Exact: true, Index: f.o.Index}
	}
	if keeps {
		hints.SetShare(f.share.SetCached(sizes.Share(f.o.Choice)))
	}
	if f.o.Survey.Held.Packed == f.o.Survey.Held.Shards || keeps && gathers && !f.o.Choice.Chunks {
		return nil
	}
	p := &window.Plan{Hints: hints, Keeps: keeps, LookaheadBytes: f.o.LookaheadBytes, MostBytes: f.o.Survey.Limits.WindowBytes, Again: f.o.Again}
	if keeps {
		p.MostBytes = sizes.KeptAhead(f.o.Choice)
		if !gathers {
			p.MostBytes = max(p.MostBytes, f.o.Survey.Limits.WindowBytes) // what the cache has no room for goes to memory
		}
	}
	if gathers {
		p.Index, p.Places, p.Chunks = f.o.Index, f.o.Survey.Places, f.o.Choice.Chunks
		p.Phase = f.o.Phase
		p.Layout = func(part chunkmap.Part, number int) (int, chunkmap.Layout) {
			return f.o.Survey.Places.Of(part).Layout(number, func(int) (int64, chunkmap.Widener) { return f.o.Profile.GapBytes, nil })
		}
		p.StaleRecords = sizes.StaleRecords()
		p.Init()
	}
	return p
}
