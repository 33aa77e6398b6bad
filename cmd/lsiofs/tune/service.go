package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	storagetune "github.com/lsiofs/lsiofs/pipeline/tune"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// ServiceReport is the result of measuring a bucket or web server.
type ServiceReport struct {
	Place   filesystem.Place `json:"place"`
	Profile storage.Profile  `json:"profile"`
	probe.Rates
	Reasons []string `json:"reasons"`
	File    string   `json:"file,omitempty"` // "" for --dry-run
}

// longest bounds the length of a service's measurement.
const longest = time.Minute

// runService measures the service that stores a dataset, or shows what is known about it.
func runService(ctx context.Context, o Options, u *terminal.UI) (err error) {
	length := time.Duration(o.Seconds * float64(time.Second))
	if length > longest {
		return exit.Usagef("--seconds (%v) must be at most %.0f for a bucket or a web server", o.Seconds, longest.Seconds())
	}
	o.Service.Trouble = func(t remote.Trouble) { u.Notef("%s", t) }
	s, err := probe.Open(ctx, o.Path, o.Service)
	if err != nil {
		return exit.With(exit.Dataset, fmt.Errorf("dataset: %w; lsiofs doctor URL checks it step by step", err))
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if o.Show {
		return showFound(s.Name(), filesystem.FindEndpointProfile(s.Kind(), s.Name()), u)
	}
	if o.Trials == nil {
		o.Trials = probe.DefaultPlan
	}
	plan := o.Trials()
	plan.Duration = length
	if o.Yes {
		plan.MostBytes = 0
	}
	v := newView(u)
	plan.Progress = func(done float64) { v.show(storagetune.Progress{Stage: "measuring ranges", Done: done}) }
	rates, err := s.Rates(ctx, plan)
	v.clear()
	if err != nil {
		return exit.With(exit.Dataset, fmt.Errorf("dataset: %w; lsiofs doctor URL checks it step by step", err))
	}
	r := ServiceReport{Place: filesystem.Endpoint(s.Kind(), s.Name()), Rates: rates}
	r.Profile, r.Reasons = probe.Derive(s.Kind(), rates.Cells, time.Now().UTC().Truncate(time.Second))
	r.Reasons = append(r.Reasons, r.further(o.Yes)...)
	if !o.DryRun {
		var dir string
		if dir, err = filesystem.ProfileDir(); err == nil {
			r.File, err = filesystem.SaveProfile(dir, filesystem.StoredProfile{Place: r.Place, Profile: r.Profile, Cells: r.Cells})
		}
	}
	return errors.Join(r.write(s.Name(), u), err)
}

// defaultConnections is the default of --connections.
const defaultConnections = 128

// further returns remarks about the measurement.
func (r *ServiceReport) further(yes bool) (texts []string) {
	if r.Throttled > 0 {
		texts = append(texts, fmt.Sprintf("the service rejected %s of %s requests (429 or 503), so this is less than it can give: measure again later",
			terminal.Count(r.Throttled), terminal.Count(r.Requests)))
	}
	if r.Profile.Depth > defaultConnections {
		texts = append(texts, fmt.Sprintf("more simultaneous requests than a mount's default are faster: --connections %d", r.Profile.Depth))
	}
	if len(r.Left) > 0 && !yes {
		texts = append(texts, fmt.Sprintf("%s not measured (-): it would exceed %s of transfer (--yes permits more), or its ranges exceed the objects",
			terminal.Plural(uint64(len(r.Left)), "combination"), terminal.Bytes(probe.FreeBytes)))
	}
	return texts
}

func (r *ServiceReport) write(name string, u *terminal.UI) error {
	if u.JSON {
		return u.Emit(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s transferred in %s and %.0f s\n\n", name, terminal.Plural(uint64(r.Objects), "object"),
		terminal.Bytes(r.Bytes), terminal.Plural(r.Requests, "request"), r.Seconds)
	cellTable(&b, append(slices.Clone(r.Cells), r.gaps()...), storage.Profile{})
	b.WriteString("\n")
	for _, why := range r.Reasons {
		fmt.Fprintf(&b, "%s\n", why)
	}
	fmt.Fprintf(&b, "\n%s\n", r.Profile)
	if r.File != "" {
		fmt.Fprintf(&b, "stored as %s: mounts of datasets at %s://%s use it\n", r.File, r.Place.FileSystem, r.Place.Device)
	}
	return u.Printf("%s", b.String())
}

// gaps returns the cells that were left out, so that the table can show them as missing.
func (r *ServiceReport) gaps() []filesystem.Measurement {
	gaps := slices.Clone(r.Left)
	for i := range gaps {
		gaps[i].BytesPerSecond = notMeasured
	}
	return gaps
}
