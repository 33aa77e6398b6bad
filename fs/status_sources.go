package fs

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixture is a Dataset that may be one.
type mixture interface {
	Sources() []pipeline.MixedSource
	Shared(epoch, n uint64) []uint64
}

// sourceReport is a source of a mixture, in status.json.
type sourceReport struct {
	Name   string `json:"name"`
	Weight string `json:"weight"`
	// Records and Share are what the first of the epoch's records are of the source, as many
	// as have gone out of all workers, also before a resume.
	Records uint64  `json:"records"`
	Share   float64 `json:"share"`
	Passes  float64 `json:"passes_an_epoch"`
}

// sourceReports says what has gone out of each source; delivered are the records since the
// position was set. It is arithmetic on the weights.
func (t *tree) sourceReports(v *view, delivered uint64) (list []sourceReport) {
	m, is := t.dataset.(mixture)
	if !is {
		return nil
	}
	sources := m.Sources()
	if sources == nil {
		return nil
	}
	taken := delivered
	for _, d := range v.position.Done {
		taken += d.Taken()
	}
	counts := m.Shared(v.position.Epoch, taken)
	for i, s := range sources {
		r := sourceReport{Name: s.Name, Weight: spec.WeightText(s.Weight), Records: counts[i], Passes: s.Passes}
		if taken > 0 {
			r.Share = float64(counts[i]) / float64(taken)
		}
		list = append(list, r)
	}
	return list
}

// writeSources writes them for people.
func writeSources(b io.Writer, sources []sourceReport) {
	if len(sources) == 0 {
		return
	}
	_, _ = io.WriteString(b, "\nsources of the mixture, of the epoch's records so far:\n")
	for _, s := range sources {
		_, _ = fmt.Fprintf(b, "  %-20s weight %s, %s records (%.2f %%), %.3f passes an epoch\n", s.Name, s.Weight, humanize.Comma(int64(s.Records)), 100*s.Share, s.Passes)
	}
}
