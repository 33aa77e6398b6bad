package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/tune"
)

// tuneReport is what tune has measured, and where it is stored.
type tuneReport struct {
	tune.Result
	File string `json:"file,omitempty"` // "" for --dry-run
}

func (r tuneReport) write(u *ui) error {
	if u.json {
		return u.emit(r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", placeText(r.Place), r.Data)
	about := "past the page cache"
	if !r.Direct {
		about = "through the page cache, which this file system does not let reads pass"
	}
	fmt.Fprintf(&b, "random reads %s, with %s; %s in %.0f s\n\n", about, r.Engine, plural(uint64(r.Rounds), "round"), r.Seconds)
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
	return u.printf("%s", b.String())
}

// placeText names a storage.
func placeText(p profile.Place) string {
	text := string(p.Kind)
	if p.Device != "" {
		text += " " + p.Device
	}
	if p.FileSystem != "" {
		text += " (" + p.FileSystem + ")"
	}
	return text
}

// cellTable draws throughput over size and depth. The chosen cell is marked.
func cellTable(b *strings.Builder, cells []profile.Cell, chosen profile.Profile) {
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
		fmt.Fprintf(w, "of %s\t", bytesText(s))
		for _, d := range depths {
			rate, measured := rates[[2]int64{s, int64(d)}]
			switch {
			case !measured:
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

// costTable draws what a read of each size costs, which the gap follows from.
func costTable(b *strings.Builder, costs []tune.Cost, copyRate float64) {
	if len(costs) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "µs a read\t")
	for _, c := range costs {
		fmt.Fprintf(w, "%s\t", bytesText(c.ReadBytes))
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
	fmt.Fprintf(b, "memory is copied at %s/s\n\n", bytesText(int64(copyRate)))
}

// showProfile says what a mount would use.
func showProfile(path string, u *ui) error {
	f := profile.Find(path)
	if f.Problem != nil {
		u.warn(f.Problem.Error())
	}
	if u.json {
		return u.emit(f)
	}
	from := "stored as " + f.File
	if f.File == "" {
		from = "defaults, as nothing was measured here: lsiofs tune " + shellQuote(path)
	}
	p := f.Profile
	if err := table(u.out, [][2]string{
		{"path", path},
		{"storage", placeText(f.Place)},
		{"identity", f.Place.Identity},
		{"profile", p.Source() + "; " + from},
		{"read size", bytesText(p.ReadBytes)},
		{"in flight", fmt.Sprintf("%s, or %s", plural(uint64(p.Depth), "read"), bytesText(p.InFlightBytes))},
		{"gap", bytesText(p.GapBytes)},
		{"alignment", bytesText(p.AlignBytes)},
	}); err != nil || len(f.Cells) == 0 {
		return err
	}
	var b strings.Builder
	b.WriteString("\n")
	cellTable(&b, f.Cells, p)
	return u.printf("%s", b.String())
}

// tuneView shows how far a measurement is: a bar on a terminal, a line now and
// then elsewhere.
type tuneView struct {
	ui    *ui
	began time.Time
	next  time.Duration // when the next line is due
	bar   *progressbar.ProgressBar
	shown time.Time
}

// redrawEvery is how often the bar is drawn anew.
const redrawEvery = 100 * time.Millisecond

func (v *tuneView) show(p tune.Progress) {
	now := time.Now()
	if v.ui.terminal && !v.ui.json {
		if now.Sub(v.shown) >= redrawEvery {
			v.shown = now
			v.redraw(p)
		}
		return
	}
	if now.Sub(v.began) < v.next {
		return
	}
	v.next = now.Sub(v.began) + lineEvery
	if v.ui.json {
		v.ui.mu.Lock()
		defer v.ui.mu.Unlock()
		writeJSON(v.ui.err, map[string]tune.Progress{"progress": p})
		return
	}
	v.ui.notef("%s: %.0f %%", p.Stage, 100*p.Done)
}

func (v *tuneView) redraw(p tune.Progress) {
	v.ui.mu.Lock()
	defer v.ui.mu.Unlock()
	if v.bar == nil {
		v.bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(v.ui.err), progressbar.OptionSetWidth(20),
			progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish())
	}
	v.bar.Describe(p.Stage)
	// It only fails when its writer does, and then there is no one to tell.
	_ = v.bar.Set(min(999, int(1000*p.Done)))
}

// clear takes the bar off the screen.
func (v *tuneView) clear() {
	if v.bar != nil {
		v.ui.mu.Lock()
		defer v.ui.mu.Unlock()
		_ = v.bar.Clear()
		v.bar = nil
	}
}
