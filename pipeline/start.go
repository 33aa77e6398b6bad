package pipeline

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Start is what the first bytes of a mount's streams wait for: shards that must be decoded up to
// the first records.
type Start struct {
	read.Start
	// Lanes is a number of lanes with which the start would be much shorter, taking LanesSeconds; 0
	// if there is none.
	Lanes        uint64  `json:"shorter_with_lanes,omitempty"`
	LanesSeconds float64 `json:"shorter_seconds,omitempty"`
	// Smaller is set if a smaller shuffle buffer would make the start shorter.
	Smaller bool `json:"shorter_with_smaller_shuffle,omitempty"`
}

const (
	// startRecords is about how many records a reader needs first.
	startRecords = 64
	// longStart is the duration from which on other numbers of lanes are tried.
	longStart = 2.0 // seconds
)

// expect computes what the first bytes of a view of an epoch wait for. If that takes more than long
// seconds, it also tries other numbers of lanes. They seldom help: with fewer lanes, each one's
// buffer is larger, so its first records are deeper in its first shards.
func (g *generation) expect(v *order.View, epoch uint64, long float64) (Start, error) {
	o := g.spec.Order
	f, err := g.fetcher()
	if err != nil {
		return Start{}, err
	}
	s := Start{Start: startOf(f, v, o.Lanes)}
	if g.mixing != nil || s.Seconds < long || o.Shuffle != spec.ShuffleReservoir && o.Shuffle != spec.ShuffleBlock {
		return s, nil
	}
	s.Smaller = true
	chosen, err := g.selected(context.Background(), epoch)
	if err != nil {
		return s, err
	}
	for _, lanes := range []uint64{o.Lanes / 2, o.Lanes * 2, o.Lanes / 4, o.Lanes * 4, o.Lanes / 8, o.Lanes / 16} {
		if lanes == 0 || lanes > spec.MaxLanes || lanes%o.Groups != 0 {
			continue
		}
		other := o
		other.Lanes = lanes
		e, err := order.NewEpoch(other, epoch, chosen.starts, chosen.part)
		if err != nil {
			return s, err
		}
		w, err := order.NewView(e, nil, v.Deal())
		if err != nil {
			return s, err
		}
		if t := startOf(f, w, lanes).Seconds; t <= s.Seconds/2 {
			s.Lanes, s.LanesSeconds = lanes, t
			break
		}
	}
	return s, nil
}

func startOf(f *read.Fetcher, v *order.View, lanes uint64) read.Start {
	return f.Start(workerSequence{v, 0}, int(max(startRecords, lanes)))
}

// Text describes it in words; "" if nothing has to be decoded.
func (s Start) Text() string {
	if s.DecodeBytes == 0 {
		return ""
	}
	text := fmt.Sprintf("%s until the first bytes come: %s of %d compressed shards come before them and are decoded first",
		about(s.Seconds), humanize.IBytes(uint64(s.DecodeBytes)), s.Shards)
	switch {
	case s.Lanes > 0:
		text += fmt.Sprintf("; --lanes %d would make that %s, in another order", s.Lanes, about(s.LanesSeconds))
	case s.Smaller:
		text += "; other --lanes would not make that much shorter, a smaller --shuffle-size would, in another order"
	}
	return text
}

func about(seconds float64) string {
	switch {
	case seconds < 1:
		return "less than a second"
	case seconds < 10:
		return fmt.Sprintf("about %.1f s", seconds)
	}
	return fmt.Sprintf("about %.0f s", seconds)
}
