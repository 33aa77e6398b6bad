package fs

import (
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixture is a Dataset that may be a mixture.
type mixture interface {
	Sources() []pipeline.MixedSource
	Shared(epoch uint64, done []order.Done) (counts []uint64, exact bool, err error)
}

// sourceReport is a source of a mixture, in status.json.
type sourceReport struct {
	Name   string `json:"name"`
	Weight string `json:"weight"`
	// Records and Share are how many of the epoch's delivered records are from this source, over
	// all workers, including those before a resume. About is set if some workers are so far ahead
	// of others that the figures are those of as many records from the epoch's start.
	Records uint64  `json:"records"`
	Share   float64 `json:"share"`
	About   bool    `json:"about,omitempty"`
	Passes  float64 `json:"passes_an_epoch"`
}

// sourceReports returns how much of each source was delivered; delivered is the number of records
// of each worker since the position was set.
func (t *tree) sourceReports(v *view, delivered []uint64) (list []sourceReport, err error) {
	m, is := t.dataset.(mixture)
	if !is {
		return nil, nil
	}
	sources := m.Sources()
	if sources == nil {
		return nil, nil
	}
	done := slices.Concat(v.position.Done, []order.Done{order.Given(t.spec.Order, v.files.Remaining(), v.deal, delivered)})
	counts, exact, err := m.Shared(v.position.Epoch, done)
	if err != nil {
		return nil, err
	}
	taken := uint64(0)
	for _, n := range counts {
		taken += n
	}
	for i, s := range sources {
		r := sourceReport{Name: s.Name, Weight: spec.WeightText(s.Weight), Records: counts[i], About: !exact, Passes: s.Passes}
		if taken > 0 {
			r.Share = float64(counts[i]) / float64(taken)
		}
		list = append(list, r)
	}
	return list, nil
}

// writeSources writes the sources for people.
func writeSources(b io.Writer, sources []sourceReport) {
	if len(sources) == 0 {
		return
	}
	_, _ = io.WriteString(b, "\nsources of the mixture, of the epoch's records so far:\n")
	for _, s := range sources {
		about := ""
		if s.About {
			about = "about "
		}
		_, _ = fmt.Fprintf(b, "  %-20s weight %s, %s%s records (%.2f %%), %.3f passes an epoch\n", s.Name, s.Weight, about, humanize.Comma(int64(s.Records)), 100*s.Share, s.Passes)
	}
}
