package cache

import (
	"context"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

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
