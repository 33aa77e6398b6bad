package inspect

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Source is one dataset of a mixture.
type Source struct {
	Name        string  `json:"name"`
	Weight      string  `json:"weight"`
	Dataset     string  `json:"dataset"`
	Fingerprint string  `json:"fingerprint"`
	Records     uint64  `json:"records"` // after the split
	StreamBytes int64   `json:"stream_bytes"`
	Passes      float64 `json:"passes_an_epoch"`
}

func sourcesOf(d *pipeline.Dataset) (list []Source) {
	for _, s := range d.Sources() {
		list = append(list, Source{s.Name, spec.WeightText(s.Weight), s.Dataset, s.Fingerprint, s.Records, s.Bytes, s.Passes})
	}
	return list
}

// sourcesText formats a mixture's sources as a table.
func sourcesText(sources []Source) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  name\tweight\trecords\tbytes\tpasses per epoch\tdataset")
	for _, s := range sources {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.3f\t%s\n", s.Name, s.Weight, terminal.Count(s.Records), terminal.Bytes(s.StreamBytes), s.Passes, printable.Line(s.Dataset))
	}
	_ = t.Flush() // writing to memory does not fail
	return b.String()
}
