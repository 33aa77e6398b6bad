package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// Use opens a cache's directory for work and closes it. If dir is "", it opens the user's default.
// If that does not exist, Use prints so and returns nil.
func Use(dir string, u *terminal.UI, log *slog.Logger, work func(*diskcache.Directory) error) error {
	path, err := pipeline.CacheDirectory(dir)
	if err != nil {
		return err
	}
	d, err := diskcache.OpenDirectory(path, log)
	if dir == "" && errors.Is(err, fs.ErrNotExist) {
		u.Notef("there is no cache yet: %s does not exist", path)
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(work(d), d.Close())
}

// Canonical returns the URL by which the cache knows what the user means: without a query, which
// may contain secrets, and without a trailing slash.
func Canonical(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return strings.TrimRight(url, "/")
}

// Folder is what a cache holds of the objects in one folder, which is how users name datasets.
type Folder struct {
	URL       string    `json:"url"`               // "" for damaged objects
	Decoded   bool      `json:"decoded,omitempty"` // they are compressed objects, decoded
	Objects   int       `json:"objects"`
	SizeBytes int64     `json:"bytes"`        // of the objects
	HereBytes int64     `json:"cached_bytes"` // of these bytes, how many are cached
	DiskBytes int64     `json:"disk_bytes"`   // disk space for them
	Used      time.Time `json:"used"`         // most recently
	InUse     int       `json:"in_use"`       // number of objects
	Damaged   int       `json:"damaged"`      // number of objects
}

// Show lists the folders of a cache, the most recently used first. Ages are relative to now.
func Show(ctx context.Context, d *diskcache.Directory, now time.Time, u *terminal.UI) error {
	type folder struct {
		url     string
		decoded bool
	}
	by := map[folder]*Folder{}
	err := d.List(ctx, func(e diskcache.Entry) error {
		url := ""
		if i := strings.LastIndexByte(e.URL, '/'); i >= 0 {
			url = e.URL[:i]
		}
		f := by[folder{url, e.Decoded}]
		if f == nil {
			f = &Folder{URL: url, Decoded: e.Decoded}
			by[folder{url, e.Decoded}] = f
		}
		f.Objects++
		f.SizeBytes += e.SizeBytes
		f.HereBytes += min(e.HereBytes, e.SizeBytes)
		f.DiskBytes += e.BlocksBytes
		if e.Used.After(f.Used) {
			f.Used = e.Used
		}
		if e.InUse {
			f.InUse++
		}
		if e.Damaged != "" {
			f.Damaged++
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := make([]*Folder, 0, len(by))
	for _, f := range by {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *Folder) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.URL, b.URL), decodedLast(a, b))
	})
	if u.JSON {
		for _, f := range all {
			if err := u.Emit(f); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		u.Notef("the cache is empty")
		return nil
	}
	w := tabwriter.NewWriter(u.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FOLDER\tOBJECTS\tCACHED\tOF\tON DISK\tUSED\tIN USE")
	var sum Folder
	for _, f := range all {
		name := printable.Line(f.URL)
		if name == "" {
			name = "(damaged: lsiofs cache verify --repair)"
		}
		if f.Decoded {
			name += " (decoded)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, terminal.Count(uint64(f.Objects)),
			terminal.Bytes(f.HereBytes), terminal.Bytes(f.SizeBytes), terminal.Bytes(f.DiskBytes), age(now, f.Used), inUse(f.InUse))
		sum.Objects += f.Objects
		sum.HereBytes += f.HereBytes
		sum.SizeBytes += f.SizeBytes
		sum.DiskBytes += f.DiskBytes
	}
	if len(all) > 1 {
		fmt.Fprintf(w, "together\t%s\t%s\t%s\t%s\t\t\n", terminal.Count(uint64(sum.Objects)), terminal.Bytes(sum.HereBytes), terminal.Bytes(sum.SizeBytes), terminal.Bytes(sum.DiskBytes))
	}
	return w.Flush()
}

// decodedLast compares folders of the same name.
func decodedLast(a, b *Folder) int {
	switch {
	case a.Decoded == b.Decoded:
		return 0
	case a.Decoded:
		return 1
	}
	return -1
}

func inUse(objects int) string {
	if objects == 0 {
		return "no"
	}
	return "by a mount"
}

// age describes how long ago then was, in the largest unit that fits. Times in a cache are accurate
// to the hour.
func age(now, then time.Time) string {
	switch d := now.Sub(then); {
	case d < time.Hour:
		return "within the hour"
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

// cleaned is the result of Clean as JSON.
type cleaned struct {
	Removed int   `json:"removed"`
	InUse   int   `json:"in_use"`
	Bytes   int64 `json:"freed_bytes"`
}

// Clean removes objects that no mount uses, and reports what it has freed.
func Clean(ctx context.Context, d *diskcache.Directory, which diskcache.Which, u *terminal.UI) error {
	c, err := d.Clean(ctx, which)
	if err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(cleaned{c.Removed, c.InUse, c.FreedBytes})
	}
	text := fmt.Sprintf("removed %s, freed %s", terminal.Plural(uint64(c.Removed), "object"), terminal.Bytes(c.FreedBytes))
	if c.InUse > 0 {
		text += fmt.Sprintf("; kept %s that mounts use", terminal.Plural(uint64(c.InUse), "object"))
	}
	return u.Printf("%s\n", text)
}

// Unused is a flag's value: a time in days (30d) or in Go's units (12h).
type Unused time.Duration

func (v *Unused) String() string {
	d := time.Duration(*v)
	if day := 24 * time.Hour; d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return d.String()
}

// Set implements pflag.Value.
func (v *Unused) Set(text string) error {
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a time: write days or hours, such as 30d or 12h", text)
	}
	*v = Unused(d)
	return nil
}

// Type implements pflag.Value.
func (v *Unused) Type() string { return "time" }

// Verified is the sum of Verify's results.
type Verified struct {
	Objects  int   `json:"objects"`
	Bytes    int64 `json:"cached_bytes"` // bytes read
	BadPages int64 `json:"bad_pages"`
	Damaged  int   `json:"damaged"` // objects that can't be read at all
	Repaired bool  `json:"repaired"`
}

// Verify checks every page of a cache and lists bad ones. With repair, they are dropped, so that
// they are fetched again when read. It returns an error if bad pages stay.
func Verify(ctx context.Context, d *diskcache.Directory, repair bool, u *terminal.UI) error {
	sum, left := Verified{Repaired: repair}, 0
	err := d.Verify(ctx, repair, func(c diskcache.Checked) error {
		sum.Objects++
		sum.Bytes += c.HereBytes
		sum.BadPages += c.BadPages
		if c.Damaged != "" {
			sum.Damaged++
		}
		if c.Damaged == "" && c.BadPages == 0 {
			return nil
		}
		if !c.Repaired {
			left++
		}
		if u.JSON {
			return u.Emit(c)
		}
		what := c.Damaged
		if what == "" {
			what = terminal.Plural(uint64(c.BadPages), "page") + " of 4 KiB not as written"
		}
		if c.Repaired {
			what += "; dropped, and fetched again when read"
		}
		name := c.URL
		if name == "" {
			name = c.Name
		}
		return u.Printf("%s: %s\n", printable.Line(name), what)
	})
	if err != nil {
		return err
	}
	if u.JSON {
		err = u.Emit(sum)
	} else {
		err = u.Printf("%s, %s: %s bad, %s damaged\n", terminal.Plural(uint64(sum.Objects), "object"), terminal.Bytes(sum.Bytes),
			terminal.Plural(uint64(sum.BadPages), "page"), terminal.Plural(uint64(sum.Damaged), "object"))
	}
	if err == nil && left > 0 {
		err = exit.Errorf(exit.Verify, "%s damaged in the cache: readers never get such bytes, which are fetched again; lsiofs cache verify --repair drops them",
			terminal.Plural(uint64(left), "object"))
	}
	return err
}
