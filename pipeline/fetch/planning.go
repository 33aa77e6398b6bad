package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/ahead"
	"github.com/lsiofs/lsiofs/pipeline/fetch/piece"
	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Needs are what an epoch takes from a service, and in memory or on a disk to read each
// chunk once.
type Needs = strategy.Needs

// Needs tells what an epoch of the dataset needs, from the catalog and the settings alone.
func (f *Fetcher) Needs() Needs {
	s := f.survey.Sizes()
	return s.Needs()
}

// planning is how the storage is told what comes: nil where it does not want to know, where
// nothing is read that could be told of, and where it is a disk cache without room for what an
// order has open. A disk cache is told how much passes through it.
func (f *Fetcher) planning() *ahead.Plan {
	planner, is := f.storage.(storage.Planner)
	if !is {
		return nil
	}
	sizes := f.survey.Sizes()
	keeper, keeps := f.storage.(storage.Keeper)
	gathers := f.choice.Strategy == spec.ReadGather
	if keeps {
		keeper.SetShare(f.share.SetCached(sizes.Share(f.choice)))
	}
	if f.survey.Held.Packed == f.survey.Held.Shards || keeps && gathers && !f.choice.Chunks {
		return nil
	}
	p := &ahead.Plan{Planner: planner, Keeps: keeps, LookaheadBytes: f.config.LookaheadBytes, MostBytes: f.survey.Limits.WindowBytes, Again: f.config.Again}
	if keeps {
		p.MostBytes = sizes.KeptAhead(f.choice)
		if !gathers {
			p.MostBytes = max(p.MostBytes, f.survey.Limits.WindowBytes) // what the cache has no room for goes to memory
		}
	}
	if gathers {
		p.Index, p.Places, p.Chunks = f.index, f.survey.Places, f.choice.Chunks
		p.Phase = f.config.Phase
		p.Layout = func(part piece.Part, number int) (int, piece.Layout) {
			return f.survey.Places.Of(part).Layout(number, func(int) (int64, piece.Widener) { return f.config.Storage.GapBytes, nil })
		}
		p.StaleRecords = sizes.StaleRecords()
		p.Init()
	}
	return p
}
