package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

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
