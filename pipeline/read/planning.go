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
// storage is not a storage.Planner, if all shards are compressed, and if the storage is a disk
// cache without room for the chunks that the order has open. A disk cache is also told how much
// passes through it.
func (f *Fetcher) planning() *window.Plan {
	planner, keeper := f.caps.Planner, f.caps.Keeper
	if planner == nil {
		return nil
	}
	sizes := f.survey.Sizes()
	keeps := keeper != nil
	gathers := f.choice.Strategy == spec.ReadGather
	if keeps {
		keeper.SetShare(f.share.SetCached(sizes.Share(f.choice)))
	}
	if f.survey.Held.Packed == f.survey.Held.Shards || keeps && gathers && !f.choice.Chunks {
		return nil
	}
	p := &window.Plan{Planner: planner, Keeps: keeps, LookaheadBytes: f.config.LookaheadBytes, MostBytes: f.survey.Limits.WindowBytes, Again: f.config.Again}
	if keeps {
		p.MostBytes = sizes.KeptAhead(f.choice)
		if !gathers {
			p.MostBytes = max(p.MostBytes, f.survey.Limits.WindowBytes) // what the cache has no room for goes to memory
		}
	}
	if gathers {
		p.Index, p.Places, p.Chunks = f.index, f.survey.Places, f.choice.Chunks
		p.Phase = f.config.Phase
		p.Layout = func(part chunkmap.Part, number int) (int, chunkmap.Layout) {
			return f.survey.Places.Of(part).Layout(number, func(int) (int64, chunkmap.Widener) { return f.config.Storage.GapBytes, nil })
		}
		p.StaleRecords = sizes.StaleRecords()
		p.Init()
	}
	return p
}
