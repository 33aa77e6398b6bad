package filtering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter"
	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
)

// Summary is the report at the end and, with --watch, after each round that did something.
type Summary struct {
	Source      string   `json:"source"`
	Destination string   `json:"destination"`
	Command     []string `json:"command"`
	filter.Counts
	// Taken are the shards by naming pattern and LeftOut the other files, the first ones of each,
	// as of the time when the run listed SRC.
	Taken   []discover.Group   `json:"taken,omitempty"`
	LeftOut []discover.Verdict `json:"left_out,omitempty"`
	Seconds float64            `json:"seconds"`
}

// Run runs a filter. It sets the functions of c that report to the user.
func Run(ctx context.Context, c filter.Config, u *terminal.UI) error {
	began := time.Now()
	var found discover.Selection
	c.Found = func(s *discover.Selection) {
		found = *s
		opening.TellFound(u, s)
	}
	summary := func(counts filter.Counts) Summary {
		return Summary{c.Source, c.Destination, c.Command, counts, found.Taken, found.FirstLeft, time.Since(began).Seconds()}
	}
	c.Warn = u.Warn
	c.Said = func(shard, line string) { u.Notef("%s: %s", shard, line) }
	if u.JSON {
		c.Said = func(shard, line string) { u.Said(shard, line) }
	}
	c.Round = func(counts filter.Counts) {
		if u.JSON {
			_ = u.Emit(summary(counts)) // if the reader of the output is gone, the work continues
			return
		}
		u.Notef("%s", lineOf(counts))
	}
	shown := show(u, c.Progress)
	counts, err := filter.Run(ctx, c)
	shown.end()
	if c.Watch && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // the normal end
	}
	if err != nil {
		return coded(err)
	}
	s := summary(counts)
	if u.JSON {
		return u.Emit(s)
	}
	return print(u, s)
}

// coded attaches an exit code to an error.
func coded(err error) error {
	var shards *filter.NoShardsError
	switch {
	case errors.Is(err, command.ErrNotFound), errors.Is(err, filter.ErrPlaces), errors.Is(err, units.ErrWhole):
		return exit.With(exit.Usage, err)
	case errors.As(err, &shards):
		return exit.With(exit.Dataset, err)
	}
	if f, ok := errors.AsType[*filter.Failure](err); ok {
		code := exit.Failure
		if f.Source {
			code = exit.Dataset
		}
		return exit.With(code, fmt.Errorf("%w (no result of this shard was kept; --on-failed skip leaves out the units that fail)", err))
	}
	return err
}

func lineOf(c filter.Counts) string {
	text := fmt.Sprintf("%s filtered, %s already had a result", terminal.Plural(c.Filtered, "shard"), terminal.Count(c.Unchanged))
	for _, x := range []struct {
		n    uint64
		text string
	}{{c.Failed, "failed"}, {c.Removed, "removed"}, {c.Writing, "being written"}, {c.Passed, "skipped"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %s %s", terminal.Count(x.n), x.text)
		}
	}
	return text
}

func print(u *terminal.UI, s Summary) error {
	rows := [][2]string{
		{"shards", terminal.Count(s.Shards)},
		{"filtered", fmt.Sprintf("%s (%s to %s)", terminal.Plural(s.Filtered, "shard"), terminal.Bytes(s.BytesIn), terminal.Bytes(s.BytesOut))},
		{"had a result", terminal.Plural(s.Unchanged, "shard")},
		{"units", fmt.Sprintf("%s in, %s out", terminal.Count(s.UnitsIn), terminal.Count(s.UnitsOut))},
		{"records", terminal.Count(s.Records)},
	}
	for _, x := range []struct {
		name string
		n    uint64
		one  string
	}{
		{"dropped", s.Dropped, "shard"}, {"failed", s.Failed, "shard"}, {"failed units", s.UnitsLost, "unit"}, {"removed", s.Removed, "result"},
		{"being written", s.Writing, "file"}, {"skipped", s.Passed, "file"},
	} {
		if x.n > 0 {
			rows = append(rows, [2]string{x.name, terminal.Plural(x.n, x.one)})
		}
	}
	return terminal.Table(u.Out, rows)
}
