package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
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
// it drops what does not match, and what the disk can't read. It ends with ctx, also within an
// object.
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
		here, bad, err := o.verify(ctx)
		if err != nil {
			return fmt.Errorf("cache directory %s: object %s: %w", d.dir.path, e.Name, err)
		}
		c.HereBytes = here * pageBytes
		for _, r := range bad {
			c.BadPages += r.pages()
			if !repair {
				continue
			}
			if err := o.drop(r); err != nil {
				return fmt.Errorf("cache directory %s: object %s: repair: %w", d.dir.path, e.Name, err)
			}
			c.Repaired = true
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

// sumsAtOnce is how many sums are read at a time: those of 256 MiB.
const sumsAtOnce = 64 << 10

// stored is an object in a directory that was opened by its name alone. Its .sums file is locked,
// so that no process removes it.
type stored struct {
	dir    *directory
	key    key
	header header
	files  *pair
}

var errNoObject = errors.New("it is not an object of this cache's format")

// errVanished means that an object has been removed since it was listed: mounts make room.
var errVanished = fmt.Errorf("%w: it has been removed meanwhile", errNoObject)

// openStored opens an object. Errors wrap errNoObject if it is damaged or gone.
func (c *directory) openStored(k key) (*stored, error) {
	folder, err := c.subdirectory(c.store, k.folder(), false)
	if errors.Is(err, unix.ENOENT) {
		return nil, errVanished
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	defer c.disk.close(folder)
	if err := c.lockFolder(folder); err != nil {
		return nil, err
	}
	o := &stored{dir: c, key: k}
	data := -1
	sums, err := c.disk.open(folder, k.name()+".sums", unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) {
		return nil, errVanished
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	b := make([]byte, headerBytes)
	n, err := c.disk.read(sums, b, 0)
	if err == nil {
		o.header, err = parseHeader(b[:n])
	}
	if err == nil {
		w := wanted{sizeBytes: o.header.ObjectBytes}
		var st unix.Stat_t
		if st, err = c.disk.stat(sums); err == nil && st.Size != w.sumsBytes() {
			err = errDamaged
		}
		if err == nil {
			data, err = c.openFile(folder, k.name()+".data", w.dataBytes())
		}
	}
	if err != nil {
		c.disk.close(sums)
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	_ = c.disk.lock(sums, unix.LOCK_SH|unix.LOCK_NB)
	o.files = pairOf(data, sums)
	return o, nil
}

func (o *stored) close() { o.files.close() }

func (o *stored) pages() int64 { return pagesOf(o.header.ObjectBytes) }

// chunks calls visit with the sums of all pages, up to sumsAtOnce of them at a time.
func (o *stored) chunks(visit func(r run, sums []byte) error) error {
	for begin := int64(0); begin < o.pages(); begin += sumsAtOnce {
		r := run{begin, min(begin+sumsAtOnce, o.pages())}
		sums, err := o.readSums(r)
		if err == nil {
			err = visit(r, sums)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *stored) readSums(r run) ([]byte, error) {
	sums := make([]byte, r.pages()*sumBytes)
	_, err := o.dir.disk.read(o.files.sums.FD(), sums, sumsAt(r.begin))
	return sums, err
}

// drop removes pages. Their disk space is freed if the file system can do that.
func (o *stored) drop(r run) error {
	if o.dir.punches {
		return o.dir.drop(o.files, r)
	}
	return o.dir.spoil(o.files, r)
}

// count returns how many pages are cached.
func (o *stored) count() (here int64, err error) {
	err = o.chunks(func(_ run, sums []byte) error {
		for i := range int64(len(sums) / sumBytes) {
			if sumOf(sums, i) != 0 {
				here++
			}
		}
		return nil
	})
	return here, err
}

// read reads pages into buf, and returns those that the disk can't read, counted from the first one:
// its other pages may be fine.
func (o *stored) read(r run, buf []byte) (lost pageSet, err error) {
	n, err := o.dir.disk.read(o.files.data.FD(), buf[:r.bytes()], r.begin*pageBytes)
	clear(buf[n:])
	if !errors.Is(err, unix.EIO) {
		return lost, err
	}
	for i := range r.pages() {
		page := buf[i*pageBytes:][:pageBytes]
		n, err := o.dir.disk.read(o.files.data.FD(), page, (r.begin+i)*pageBytes)
		clear(page[n:])
		if errors.Is(err, unix.EIO) {
			lost.add(i)
		} else if err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// verify checks all cached pages, and returns those that do not match their sums, or that the disk
// can't read.
func (o *stored) verify(ctx context.Context) (here int64, bad []run, err error) {
	s, buf := newSummer(o.key), make([]byte, pieceBytes)
	err = o.chunks(func(r run, sums []byte) error {
		for begin := r.begin; begin < r.end; begin += pieceBytes / pageBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := run{begin, min(begin+pieceBytes/pageBytes, r.end)}
			of := sums[(begin-r.begin)*sumBytes:][:piece.pages()*sumBytes]
			if !slices.ContainsFunc(of, func(b byte) bool { return b != 0 }) {
				continue
			}
			lost, err := o.read(piece, buf)
			if err != nil {
				return err
			}
			for i := range piece.pages() {
				switch sum := sumOf(of, i); {
				case sum == 0:
				case sum == s.sum(begin+i, buf[i*pageBytes:][:pageBytes]) && !lost.has(i):
					here++
				default:
					here++
					// A mount may have dropped the page since its sum was read.
					now, err := o.readSums(run{begin + i, begin + i + 1})
					if err != nil {
						return err
					}
					if sumOf(now, 0) == sumOf(of, i) {
						bad = with(bad, begin+i)
					}
				}
			}
		}
		return nil
	})
	return here, bad, err
}

// ErrNotWhole means that an object is not completely in the cache, or not any more.
var ErrNotWhole = errors.New("it is not all in the cache")

// Exact reports whether URL and Validator are the full identity of an object: very long ones are
// cut.
func (e *Entry) Exact() bool {
	return e.Damaged == "" && keyOf(Identity{URL: e.URL, Validator: e.Validator}, e.SizeBytes).name() == e.Name
}

// Whole reports whether all of an object is in the cache, as counted by List.
func (e *Entry) Whole() bool {
	return e.Damaged == "" && e.HereBytes == pagesOf(e.SizeBytes)*pageBytes
}

// Copy writes all bytes of an object that List has returned, and checks each page. The error is
// ErrNotWhole if some are missing, or do not match their sums.
func (d *Directory) Copy(ctx context.Context, name string, w io.Writer) error {
	k, ok := parseName(name)
	if !ok {
		return fmt.Errorf("object %q: %w", name, errNoObject)
	}
	o, err := d.dir.openStored(k)
	if errors.Is(err, errVanished) {
		return ErrNotWhole
	}
	if err != nil {
		return err
	}
	defer o.close()
	return o.copy(ctx, w)
}

func (o *stored) copy(ctx context.Context, w io.Writer) error {
	s, buf := newSummer(o.key), make([]byte, pieceBytes)
	return o.chunks(func(r run, sums []byte) error {
		for begin := r.begin; begin < r.end; begin += pieceBytes / pageBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := run{begin, min(begin+pieceBytes/pageBytes, r.end)}
			n, err := o.dir.disk.read(o.files.data.FD(), buf[:piece.bytes()], begin*pageBytes)
			if err != nil {
				return err
			}
			clear(buf[n:])
			for page := piece.begin; page < piece.end; page++ {
				if sum := sumOf(sums, page-r.begin); sum == 0 || sum != s.sum(page, buf[(page-begin)*pageBytes:][:pageBytes]) {
					return ErrNotWhole
				}
			}
			if _, err := w.Write(buf[:min(piece.bytes(), o.header.ObjectBytes-begin*pageBytes)]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drop makes readers fetch all of an object again.
func (d *Directory) Drop(name string) error {
	k, ok := parseName(name)
	if !ok {
		return fmt.Errorf("object %q: %w", name, errNoObject)
	}
	o, err := d.dir.openStored(k)
	if errors.Is(err, errVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	defer o.close()
	return o.chunks(func(r run, _ []byte) error { return o.drop(r) })
}
