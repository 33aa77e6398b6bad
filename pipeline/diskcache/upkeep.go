package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is an object of a cache, as List describes it.
type Entry struct {
	Name        string    `json:"name"` // 32 hexadecimal digits, the name of its files
	URL         string    `json:"url"`  // cut if it is very long; "" if Damaged
	Validator   string    `json:"validator"`
	Decoded     bool      `json:"decoded,omitempty"` // it is the decoded form of a compressed object
	SizeBytes   int64     `json:"bytes"`             // of the object, or of its decoded form
	HereBytes   int64     `json:"cached_bytes"`      // in whole pages
	BlocksBytes int64     `json:"disk_bytes"`        // disk space of its files
	Created     time.Time `json:"created"`
	Used        time.Time `json:"used"` // approximately: to the hour, while it is in use
	InUse       bool      `json:"in_use"`
	Damaged     string    `json:"damaged,omitempty"` // why it can't be read; "" if it can
}

// Directory is a cache's directory without a mount, for commands that maintain it. Its methods may
// be called while mounts use it.
type Directory struct{ dir *directory }

// OpenDirectory opens a cache's directory, which must exist. Errors are those of Open, and
// fs.ErrNotExist.
func OpenDirectory(path string, log *slog.Logger) (*Directory, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if _, err := (kernel{}).statAt(unix.AT_FDCWD, path); err != nil {
		return nil, fmt.Errorf("cache directory: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	dir, err := openDirectory(kernel{}, path, log)
	if err != nil {
		return nil, err
	}
	return &Directory{dir}, nil
}

// Close ends the use of the directory.
func (d *Directory) Close() error {
	d.dir.close()
	return nil
}

// List calls visit for each object, least recently used first.
func (d *Directory) List(ctx context.Context, visit func(Entry) error) error {
	return d.each(ctx, func(f found) error {
		e, o, err := d.describe(f)
		if errors.Is(err, errVanished) {
			return nil
		}
		if o != nil {
			here, err := o.count()
			e.HereBytes = here * pageBytes
			o.close()
			if err != nil {
				e.Damaged = err.Error()
			}
		}
		return visit(e)
	})
}

func (d *Directory) each(ctx context.Context, visit func(found) error) error {
	all, err := d.dir.objects()
	if err != nil {
		return fmt.Errorf("cache directory %s: %w", d.dir.path, err)
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(all[i]); err != nil {
			return err
		}
	}
	return nil
}

// Holds reports whether all pages of an object are cached, by their sums.
func (d *Directory) Holds(id Identity, sizeBytes int64) bool {
	if sizeBytes == 0 {
		return true
	}
	o, err := d.dir.openStored(keyOf(id, sizeBytes))
	if err != nil {
		return false
	}
	defer o.close()
	here, err := o.count()
	return err == nil && here == o.pages()
}

// describe returns an object, open, or the reason why it can't be opened.
func (d *Directory) describe(f found) (Entry, *stored, error) {
	e := Entry{Name: f.key.name(), BlocksBytes: f.blocks, Used: f.used, InUse: d.dir.inUse(f.key)}
	o, err := d.dir.openStored(f.key)
	if err != nil {
		if !errors.Is(err, errBusy) {
			e.Damaged = err.Error()
		}
		return e, nil, err
	}
	e.URL, e.Validator, e.SizeBytes, e.Created = o.header.URL, o.header.Validator, o.header.ObjectBytes, o.header.Created
	e.Decoded = strings.Contains(e.Validator, DecodedMark)
	return e, o, nil
}

// Checked is what Verify found of one object.
type Checked struct {
	Entry
	BadPages int64 `json:"bad_pages"`
	Repaired bool  `json:"repaired"` // bad pages were dropped, damaged objects removed: both are fetched again
}

// Verify reads all pages of all objects, checks them, and calls visit for each object. With repair
// it drops what does not match.
func (d *Directory) Verify(ctx context.Context, repair bool, visit func(Checked) error) error {
	return d.each(ctx, func(f found) error {
		e, o, err := d.describe(f)
		if errors.Is(err, errVanished) {
			return nil
		}
		c := Checked{Entry: e}
		if o == nil {
			if repair && c.Damaged != "" {
				gone, err := d.dir.remove(f.key)
				c.Repaired = gone && err == nil
			}
			return visit(c)
		}
		defer o.close()
		here, bad, err := o.verify()
		if err != nil {
			return fmt.Errorf("cache directory %s: object %s: %w", d.dir.path, e.Name, err)
		}
		c.HereBytes = here * pageBytes
		for _, r := range bad {
			c.BadPages += r.pages()
			if !repair {
				continue
			}
			if err := d.dir.zero(o.sums, r); err != nil {
				return fmt.Errorf("cache directory %s: object %s: repair: %w", d.dir.path, e.Name, err)
			}
			c.Repaired = true
			if d.dir.punches {
				err = d.dir.free(o.data, r)
			}
			if err != nil {
				return fmt.Errorf("cache directory %s: object %s: repair: %w", d.dir.path, e.Name, err)
			}
		}
		return visit(c)
	})
}

// Which selects what Clean removes. Objects in use are never removed.
type Which struct {
	// URL selects objects of this URL, and those below it; "" for all.
	URL string
	// UnusedFor selects objects that were not used for that long; 0 for all.
	UnusedFor time.Duration
	Now       time.Time
}

// Cleaned is the result of Clean.
type Cleaned struct {
	Removed, InUse int   // objects
	FreedBytes     int64 // on the disk
}

// Clean removes objects that no mount uses.
func (d *Directory) Clean(ctx context.Context, which Which) (Cleaned, error) {
	var c Cleaned
	err := d.each(ctx, func(f found) error {
		if which.UnusedFor > 0 && which.Now.Sub(f.used) < which.UnusedFor {
			return nil
		}
		if which.URL != "" {
			e, o, _ := d.describe(f)
			if o != nil {
				o.close()
			}
			if !under(e.URL, which.URL) {
				return nil
			}
		}
		gone, err := d.dir.remove(f.key)
		switch {
		case err != nil && !errors.Is(err, errNotOur):
			return fmt.Errorf("cache directory %s: remove object %s: %w", d.dir.path, f.key.name(), err)
		case gone:
			c.Removed++
			c.FreedBytes += f.blocks
		default:
			c.InUse++
		}
		return nil
	})
	return c, err
}

// under reports whether a URL equals another one, or is below it.
func under(url, above string) bool {
	rest, ok := strings.CutPrefix(url, above)
	return ok && (rest == "" || strings.HasSuffix(above, "/") || rest[0] == '/')
}
