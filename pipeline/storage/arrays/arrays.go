// Package arrays implements a storage that combines several array files into one object, record by
// record: for example the images in x.npy and the labels in y.npy are read as one file of
// structured rows.
//
//	x-0.npy │ header │ row 0 │ row 1 │ …       y-0.npy │ header │ row 0 │ row 1 │ …
//
//	object  │ prologue │ x's row 0 │ 0… │ y's row 0 │ 0… │ x's row 1 │ 0… │ y's row 1 │ 0… │ …
//
// Zeros follow each row, up to a multiple of 64 bytes. The path of an object is that of its first
// file. A Framing provides the prologue, and the offset at which the rows begin in a file. The
// version of an object is a hash of the paths, sizes, times and inodes of its files, so it changes
// with any of them.
//
// Files are listed and read through another storage, which compares each file with the listing
// before and after every read. A read of several rows takes memory while it is in flight, at most
// as much as its length: rows below 32 KiB are read together, then laid out. Nothing is mapped.
package arrays

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Framing describes the files' format. It is pure.
type Framing interface {
	// HeaderBytes returns how many of a file's first bytes Describe needs. head contains the bytes
	// known so far; a result of at most len(head) means that they are enough.
	HeaderBytes(head []byte) int
	// Describe describes the contents of a file: the kind of its rows, their number, the size of
	// one, and the offset of the first. Everything after that offset is rows.
	Describe(head []byte, sizeBytes int64) (kind string, rows, rowBytes, offsetBytes int64, err error)
	// Prologue returns the bytes before n records. A record is one row of every kind, each with its
	// padding.
	Prologue(names, kinds []string, n uint64) ([]byte, error)
}

// Storage joins files of another storage. Its methods may be called concurrently.
type Storage struct {
	under   storage.Storage
	caps    storage.Caps // of under
	framing Framing
	dry     *Dry // what the storage is in a dry run; nil: it reads

	inflight storage.Inflight
	mu       sync.Mutex
	objects  map[string]*object // by path
}

var _ storage.Storage = (*Storage)(nil)

// Wrap returns a storage that joins files of under. Closing it closes under.
func Wrap(under storage.Storage, framing Framing) *Storage {
	return &Storage{under: under, caps: under.Caps(), framing: framing, objects: map[string]*object{}}
}

// Caps implements storage.Storage. What reads or announces ranges of files does not fit ranges of
// objects: nothing is mapped, and no hints are taken.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{Omitted: s.caps.Omitted, Join: s.Join, Status: s.caps.Status, HeldBytes: s.caps.HeldBytes, AdjustProfile: s.caps.AdjustProfile}
	if s.caps.StatStable != nil {
		c.StatStable = s.StatStable
	}
	if s.caps.Uncached != nil {
		c.Uncached = s.Uncached
	}
	return c
}

// Uncached implements storage.Caps.
func (s *Storage) Uncached() (storage.Storage, error) {
	under, err := s.caps.Uncached()
	if under == nil || err != nil {
		return nil, err
	}
	return s.on(under), nil
}

// on returns a storage that reads the same objects through another storage of the same files, and
// closes that.
func (s *Storage) on(under storage.Storage) *Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Storage{under: under, caps: under.Caps(), framing: s.framing, objects: maps.Clone(s.objects)}
}

// object is an object made by Join. It is immutable.
type object struct {
	listed      storage.Object
	prologue    []byte
	recordBytes int64
	parts       []part
}

// part is one file of an object.
type part struct {
	file        storage.Object
	offsetBytes int64 // of the first row, in the file
	rowBytes    int64
	place       int64 // offset of the row within a record
}

// alignBytes is the alignment that each row is padded to.
const alignBytes = 64

// List lists the files that Join makes objects from.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	return s.under.List(ctx, match, visit)
}

// Stat describes an object made by Join, as its files are now; any other path is a file.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.under.Stat)
}

// StatStable implements storage.Caps.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.caps.StatStable)
}

func (s *Storage) describe(ctx context.Context, path string, stat func(context.Context, string) (storage.Object, error)) (storage.Object, error) {
	s.mu.Lock()
	o := s.objects[path]
	s.mu.Unlock()
	if o == nil {
		return stat(ctx, path)
	}
	files := make([]storage.Object, len(o.parts))
	for i := range o.parts {
		var err error
		if files[i], err = stat(ctx, o.parts[i].file.Path); err != nil {
			return storage.Object{}, err
		}
	}
	now := o.listed
	now.Version = versionOf(files)
	return now, nil
}

// Join implements storage.Caps. It reads the files' headers.
func (s *Storage) Join(ctx context.Context, names []string, files []storage.Object) (storage.Object, error) {
	o := &object{listed: storage.Object{Path: files[0].Path, Version: versionOf(files)}}
	kinds := make([]string, len(files))
	rows := int64(0)
	for i, f := range files {
		head, err := s.header(ctx, f)
		if err != nil {
			return storage.Object{}, err
		}
		p := part{file: f, place: o.recordBytes}
		var n int64
		if kinds[i], n, p.rowBytes, p.offsetBytes, err = s.framing.Describe(head, f.SizeBytes); err != nil {
			return storage.Object{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		if i > 0 && n != rows {
			return storage.Object{}, fmt.Errorf("%s has %d rows, and %s has %d: files that are read together need equally many", files[0].Path, rows, f.Path, n)
		}
		rows = n
		if p.rowBytes > 1<<40 {
			return storage.Object{}, fmt.Errorf("%s: its rows have %d bytes each: at most %d are read", f.Path, p.rowBytes, int64(1<<40))
		}
		o.recordBytes += (p.rowBytes + alignBytes - 1) / alignBytes * alignBytes
		o.parts = append(o.parts, p)
	}
	var err error
	if o.prologue, err = s.framing.Prologue(names, kinds, uint64(rows)); err != nil {
		return storage.Object{}, fmt.Errorf("%s: %w", files[0].Path, err)
	}
	if rows > 0 && o.recordBytes > (1<<62)/rows {
		return storage.Object{}, fmt.Errorf("%s: %d records of %d bytes are more than 2⁶² bytes", files[0].Path, rows, o.recordBytes)
	}
	o.listed.SizeBytes = int64(len(o.prologue)) + rows*o.recordBytes
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[o.listed.Path] = o
	return o.listed, nil
}

// firstHeaderBytes is how much of a file is read at first: almost all headers are shorter.
const firstHeaderBytes = 1024

// header reads enough of a file to describe it.
func (s *Storage) header(ctx context.Context, f storage.Object) ([]byte, error) {
	head := make([]byte, min(f.SizeBytes, firstHeaderBytes))
	if err := storage.ReadAt(ctx, s.under, f, head, 0); err != nil {
		return nil, err
	}
	if n := min(int64(s.framing.HeaderBytes(head)), f.SizeBytes); n > int64(len(head)) {
		head = make([]byte, n)
		if err := storage.ReadAt(ctx, s.under, f, head, 0); err != nil {
			return nil, err
		}
	}
	return head, nil
}

// versionOf returns equal versions for equal files.
func versionOf(files []storage.Object) storage.Version {
	identity, changes := sha256.New(), sha256.New()
	var b []byte
	changed := false
	for _, f := range files {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(len(f.Path)))
		b = append(b, f.Path...)
		for _, n := range []uint64{uint64(f.SizeBytes), uint64(f.Version.ModTimeNanos), f.Version.Inode} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		_, _ = identity.Write(b)
		_, _ = changes.Write(binary.LittleEndian.AppendUint64(nil, uint64(f.Version.ChangeTimeNanos)))
		changed = changed || f.Version.ChangeTimeNanos != 0
	}
	h := identity.Sum(nil)
	v := storage.Version{ModTimeNanos: int64(binary.LittleEndian.Uint64(h) >> 1), Inode: binary.LittleEndian.Uint64(h[8:]) | 1}
	if changed {
		v.ChangeTimeNanos = int64(binary.LittleEndian.Uint64(changes.Sum(nil)) >> 1)
	}
	return v
}

// Close waits for the reads in flight. It is idempotent.
func (s *Storage) Close() error {
	s.inflight.Close()
	return s.under.Close()
}

// find returns the object of a read, or an error if the read is not valid.
func (s *Storage) find(r *storage.Read) (*object, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	o := s.objects[r.Object.Path]
	s.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("it was not listed: %w", storage.ErrChanged)
	}
	return o, storage.Compare(r.Object, o.listed)
}

// togetherBytes is the size from which a row is read on its own, directly to its destination: below
// it a read costs more than copying.
const togetherBytes = 32 << 10

// reading is a read in progress, which consists of several reads of files.
type reading struct {
	storage *Storage
	read    *storage.Read
	pending atomic.Int32 // reads of files that are not done
	failed  atomic.Pointer[error]
	out     []byte   // the part of the buffer for records
	layouts []layout // what is left to copy there after all reads

	mu       sync.Mutex
	unwanted bool
}

// layout is rows of one part that were read together: they are copied from rows to out, one every
// recordBytes. first is the destination of the first one (which may begin before the read), and
// skipped is how many of its bytes were not read.
type layout struct {
	rows           []byte
	first, skipped int64
	rowBytes       int64
	recordBytes    int64
}

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	var all []*storage.Read
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		o, err := s.find(r)
		if !open {
			err = storage.ErrClosed
		}
		x := &reading{storage: s, read: r}
		var parts []*storage.Read
		if err == nil {
			parts = x.split(o)
		}
		if len(parts) == 0 { // an error, or the range has no bytes of a file
			x.pending.Store(1)
			if s.dry != nil && err == nil {
				s.dry.empty = append(s.dry.empty, x)
			} else {
				go x.done(err)
			}
			continue
		}
		x.pending.Store(int32(len(parts)))
		all = append(all, parts...)
	}
	if len(all) > 0 {
		s.under.Submit(all)
	}
}

// split fills in the bytes that are not from files, and returns the reads of files for the rest.
func (x *reading) split(o *object) (reads []*storage.Read) {
	buf, from := x.read.Buf, x.read.OffsetBytes-int64(len(o.prologue)) // relative to the records
	dry := x.storage.dry != nil
	if from < 0 {
		n := min(-from, int64(len(buf)))
		if !dry {
			copy(buf[:n], o.prologue[x.read.OffsetBytes:])
		}
		buf, from = buf[n:], 0
	}
	if len(buf) == 0 {
		return nil
	}
	if !dry {
		clear(buf)
	}
	to := from + int64(len(buf))
	for i := range o.parts {
		p := &o.parts[i]
		if p.rowBytes == 0 {
			continue
		}
		// Rows first … last overlap the range: the first from its byte skip on, the last up to its
		// byte end.
		first, last := from/o.recordBytes, (to-1)/o.recordBytes
		skip, end := max(from-first*o.recordBytes-p.place, 0), min(to-last*o.recordBytes-p.place, p.rowBytes)
		if skip >= p.rowBytes {
			first, skip = first+1, 0
		}
		if end <= 0 {
			last, end = last-1, p.rowBytes
		}
		if first > last {
			continue
		}
		place := func(row int64) int64 { return row*o.recordBytes + p.place - from }
		if last > first && p.rowBytes < togetherBytes {
			l := layout{first: place(first), skipped: skip, rowBytes: p.rowBytes, recordBytes: o.recordBytes}
			l.rows = x.storage.rows((last-first)*p.rowBytes - skip + end)
			if !dry {
				x.layouts = append(x.layouts, l)
			}
			reads = append(reads, x.of(p, first*p.rowBytes+skip, l.rows))
			continue
		}
		for row := first; row <= last; row++ {
			low, high := int64(0), p.rowBytes
			if row == first {
				low = skip
			}
			if row == last {
				high = end
			}
			if low < high {
				reads = append(reads, x.of(p, row*p.rowBytes+low, buf[place(row)+low:place(row)+high]))
			}
		}
	}
	x.out = buf
	return reads
}

// of returns a read of a part's file, rowsOffset bytes after the start of its rows.
func (x *reading) of(p *part, rowsOffset int64, buf []byte) *storage.Read {
	r := &storage.Read{Object: p.file, OffsetBytes: p.offsetBytes + rowsOffset, Buf: buf, Done: x.done}
	if x.read.Wanted != nil {
		r.Wanted = x.wanted
	}
	return r
}

// wanted calls the submitter's Wanted until it returns false.
func (x *reading) wanted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unwanted && !x.read.Wanted() {
		x.unwanted = true
	}
	return !x.unwanted
}

// done is called for each read of a file, and reports to the submitter after the last one.
func (x *reading) done(err error) {
	if err != nil {
		x.failed.CompareAndSwap(nil, &err)
	}
	if x.pending.Add(-1) > 0 {
		return
	}
	defer x.storage.inflight.End()
	r := x.read
	x.mu.Lock()
	unwanted := x.unwanted // takes precedence over other errors
	x.mu.Unlock()
	switch failed := x.failed.Load(); {
	case unwanted:
		r.Done(storage.ErrUnwanted)
	case failed != nil:
		r.Done(r.Failure(*failed))
	default:
		for i := range x.layouts {
			x.layouts[i].spread(x.out)
		}
		r.Done(nil)
	}
}

// spread copies the rows to their destinations in out.
func (l *layout) spread(out []byte) {
	rows, at, n := l.rows, l.first+l.skipped, l.rowBytes-l.skipped
	for len(rows) > 0 {
		n = min(n, int64(len(rows)))
		copy(out[at:], rows[:n])
		rows, at, n = rows[n:], at+n+l.recordBytes-l.rowBytes, l.rowBytes
	}
}
