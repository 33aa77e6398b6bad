package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	storagetune "github.com/lsiofs/lsiofs/pipeline/tune"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// Options select what is measured, and whether it is stored.
type Options struct {
	Path    string
	Seconds float64
	DryRun  bool
	Show    bool
	Yes     bool              // for services: allows transferring more than probe.FreeBytes
	Service probe.Options     // how requests to the service are made
	Trials  func() probe.Plan // what is measured of a service; nil for the default (tests use less)
	// Measured returns what is measured for a path; nil for the default (tests use less).
	Measured func(path string) storagetune.Config
}

// Run measures the storage of o.Path, or shows what is known about it.
func Run(ctx context.Context, o Options, u *terminal.UI) error {
	if o.Measured == nil {
		o.Measured = storagetune.Default
	}
	if !(o.Seconds >= 0.1 && o.Seconds <= 86400) {
		return exit.Usagef("--seconds (%v) must be between 0.1 and 86400", o.Seconds)
	}
	if o.Show && o.DryRun {
		return exit.Usagef("--show and --dry-run can't be combined, because --show measures nothing: leave one of them out")
	}
	if discover.IsRemote(o.Path) {
		return runService(ctx, o, u)
	}
	target, err := discover.ParseTarget(o.Path)
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	root := target.Root()
	if o.Show {
		return showProfile(root, u)
	}
	v := newView(u)
	c := o.Measured(root)
	c.Duration = time.Duration(o.Seconds * float64(time.Second))
	c.Progress = v.show
	r, err := storagetune.Run(ctx, c)
	v.clear()
	if err != nil {
		return exit.With(exit.Dataset, err)
	}
	report := Report{Result: r}
	if !o.DryRun {
		report.File, err = saveProfile(r)
	}
	return errors.Join(report.write(u), err)
}

func saveProfile(r storagetune.Result) (string, error) {
	dir, err := filesystem.ProfileDir()
	if err != nil {
		return "", err
	}
	return filesystem.SaveProfile(dir, filesystem.StoredProfile{Place: r.Place, Profile: r.Profile, Cells: r.Cells})
}

// Report is the result of a measurement, and where it is stored.
type Report struct {
	storagetune.Result
	File string `json:"file,omitempty"` // "" for --dry-run
}

func (r Report) write(u *terminal.UI) error {
	if u.JSON {
		return u.Emit(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", PlaceText(r.Place), r.Data)
	about := "past the page cache"
	if !r.Direct {
		about = "through the page cache, because this file system does not support direct reads"
	}
	fmt.Fprintf(&b, "random reads %s, with %s; %s in %.0f s\n\n", about, r.Engine, terminal.Plural(uint64(r.Rounds), "round"), r.Seconds)
	cellTable(&b, r.Cells, r.Profile)
	b.WriteString("\n")
	costTable(&b, r.Costs, r.CopyBytesPerSecond)
	for _, why := range r.Reasons {
		fmt.Fprintf(&b, "%s\n", why)
	}
	fmt.Fprintf(&b, "\n%s\n", r.Profile)
	if r.File != "" {
		fmt.Fprintf(&b, "stored as %s: mounts of datasets on this file system use it\n", r.File)
	}
	return u.Printf("%s", b.String())
}

// PlaceText describes a storage.
func PlaceText(p filesystem.Place) string {
	text := string(p.Kind)
	if p.Device != "" {
		text += " " + p.Device
	}
	if p.FileSystem != "" {
		text += " (" + p.FileSystem + ")"
	}
	return text
}

// notMeasured as a cell's rate marks it as missing.
const notMeasured = -1

// cellTable draws throughput by size and depth. The chosen cell is marked.
func cellTable(b *strings.Builder, cells []filesystem.Measurement, chosen storage.Profile) {
	var sizes []int64
	var depths []int
	rates := map[[2]int64]float64{}
	for _, c := range cells {
		sizes, depths = append(sizes, c.ReadBytes), append(depths, c.Depth)
		rates[[2]int64{c.ReadBytes, int64(c.Depth)}] = c.BytesPerSecond
	}
	slices.Sort(sizes)
	slices.Sort(depths)
	sizes, depths = slices.Compact(sizes), slices.Compact(depths)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "GiB/s, reads\t")
	for _, d := range depths {
		fmt.Fprintf(w, "%d \t", d)
	}
	fmt.Fprintln(w, "at a time")
	for _, s := range sizes {
		fmt.Fprintf(w, "of %s\t", terminal.Bytes(s))
		for _, d := range depths {
			rate, measured := rates[[2]int64{s, int64(d)}]
			switch {
			case !measured || rate == notMeasured:
				fmt.Fprint(w, "- \t")
			case s == chosen.ReadBytes && s*int64(d) == chosen.InFlightBytes:
				fmt.Fprintf(w, "%.3f*\t", rate/(1<<30))
			default:
				fmt.Fprintf(w, "%.3f \t", rate/(1<<30))
			}
		}
		fmt.Fprintln(w)
	}
	// Writing to memory does not fail.
	_ = w.Flush()
}

// costTable draws the cost of a read by size, from which the gap is derived.
func costTable(b *strings.Builder, costs []storagetune.Cost, copyRate float64) {
	if len(costs) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "µs per read\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%s\t", terminal.Bytes(c.ReadBytes))
	}
	fmt.Fprint(w, "\nat a time\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%d\t", c.Depth)
	}
	fmt.Fprint(w, "\nmeasured\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%.1f\t", c.Seconds*1e6)
	}
	fmt.Fprint(w, "\nrequest + bytes\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%.1f\t", c.FittedSeconds*1e6)
	}
	fmt.Fprintln(w)
	// Writing to memory does not fail.
	_ = w.Flush()
	fmt.Fprintf(b, "memory is copied at %s/s\n\n", terminal.Bytes(int64(copyRate)))
}

// showProfile shows the profile that a mount would use.
func showProfile(path string, u *terminal.UI) error {
	return showFound(path, filesystem.FindProfile(path), u)
}

func showFound(path string, f filesystem.FoundProfile, u *terminal.UI) error {
	if f.Problem != nil {
		u.Warn(f.Problem.Error())
	}
	if u.JSON {
		return u.Emit(f)
	}
	from := "stored as " + f.File
	if f.File == "" {
		from = "defaults, because nothing was measured here: lsiofs tune " + terminal.Quote(path)
	}
	p := f.Profile
	if err := terminal.Table(u.Out, [][2]string{
		{"path", path},
		{"storage", PlaceText(f.Place)},
		{"identity", f.Place.Identity},
		{"profile", p.Source() + "; " + from},
		{"read size", terminal.Bytes(p.ReadBytes)},
		{"in flight", fmt.Sprintf("%s, or %s", terminal.Plural(uint64(p.Depth), "read"), terminal.Bytes(p.InFlightBytes))},
		{"gap", terminal.Bytes(p.GapBytes)},
		{"alignment", terminal.Bytes(p.AlignBytes)},
		{"read ahead", aheadText(p.Ahead)},
		{"whole shards", passText(p.Pass)},
	}); err != nil || len(f.Cells) == 0 {
		return err
	}
	var b strings.Builder
	b.WriteString("\n")
	cellTable(&b, f.Cells, p)
	return u.Printf("%s", b.String())
}

// aheadText describes how far ahead of readers a storage is read.
func aheadText(a storage.Ahead) string {
	return fmt.Sprintf("%s per reader, %s queued; stretches of %s to %s; decoders by %s", terminal.Bytes(a.Bytes), terminal.Bytes(a.QueuedBytes),
		terminal.Bytes(a.FirstStretchBytes), terminal.Bytes(a.StretchBytes), terminal.Bytes(a.DecodeBytes))
}

// passText describes how shards are read when they are indexed or verified.
func passText(p storage.Pass) string {
	shards := "one shard per core"
	if p.Shards > 0 {
		shards = terminal.Plural(uint64(p.Shards), "shard") + " at a time"
	}
	return fmt.Sprintf("%s; reads of up to %s, %s under way; gaps above %s are skipped", shards,
		terminal.Bytes(p.ReadBytes), terminal.Bytes(p.InFlightBytes), terminal.Bytes(p.SkipBytes))
}

// view shows the progress of a measurement: a bar on a terminal, otherwise a line every few
// seconds.
type view struct {
	ui    *terminal.UI
	began time.Time
	pace  terminal.Pace
	bar   *terminal.Bar
	shown time.Time
}

func newView(u *terminal.UI) *view {
	return &view{ui: u, began: time.Now(), pace: terminal.NewPace(), bar: u.NewShareBar()}
}

func (v *view) show(p storagetune.Progress) {
	now := time.Now()
	if v.ui.Terminal && !v.ui.JSON {
		if now.Sub(v.shown) >= terminal.RedrawEvery {
			v.shown = now
			v.bar.Draw(p.Stage, min(999, int64(1000*p.Done)), 1000)
		}
		return
	}
	if !v.pace.Due(now.Sub(v.began)) {
		return
	}
	if v.ui.JSON {
		v.ui.WriteProgress(p)
		return
	}
	v.ui.Notef("%s: %.0f %%", p.Stage, 100*p.Done)
}

// clear removes the bar from the screen.
func (v *view) clear() { v.bar.Clear() }
