package discover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Arrivals judges single files of a dataset whose files arrive one after another. The rules are
// those of Shards, except for those that need the whole listing:
//
//   - Files of another format than the dataset's are not shards, and not an error.
//   - Neither is text, unless it was requested: other files may still arrive.
//   - Of the numbers in a pattern's range, only those with a file count.
//
// It does not know the dataset's format; the caller determines that (Shard). It is immutable and
// safe for concurrent use.
type Arrivals struct {
	finder finder
	own    string // the index directory below the root, "" for none
}

// NewArrivals returns an Arrivals for a directory or a pattern of files. It ignores
// Config.AssumeAlike.
func NewArrivals(c Config) (*Arrivals, error) {
	c.Format, c.AssumeAlike = c.Format.WithDefaults(), false
	a := &Arrivals{finder: finder{Config: c}}
	switch {
	case c.Target.remote:
		return nil, fmt.Errorf("dataset %s is at a service, and --grow is only for directories of this machine: mount it without --grow", &c.Target)
	case c.Target.file != "":
		return nil, fmt.Errorf("dataset %s is a file: with --grow, name the directory in which files arrive, or a pattern", &c.Target)
	case len(c.Format.Arrays) > 0:
		return nil, fmt.Errorf("dataset %s: --grow can't tell which arriving files of several arrays (--array) belong together: mount it without --grow", &c.Target)
	case formats.OfDirectories(c.Format.Name):
		return nil, fmt.Errorf("dataset %s: with --format %s a directory is a shard, and --grow can't see when one is complete: mount it without --grow", &c.Target, c.Format.Name)
	}
	for _, pairs := range formats.Pairs() {
		if pairs.Name() == c.Format.Name {
			return nil, fmt.Errorf("dataset %s: --grow can't see when a shard of format %s and the file that describes it are both complete: mount it without --grow", &c.Target, c.Format.Name)
		}
	}
	if formats.Unresolved(c.Format) {
		return nil, fmt.Errorf("dataset %s: with --grow, how rows are presented does not follow from --format %s: add --as jsonl, tar or npy, or leave --format out, so that the first shard decides", &c.Target, c.Format.Name)
	}
	if err := refuseMount(&c.Target, c.Format.Name); err != nil {
		return nil, err
	}
	if c.Format.Name != "auto" {
		if _, err := formats.New(c.Format); err != nil {
			return nil, fmt.Errorf("format %s: %w", c.Format.Name, err)
		}
	}
	a.own = a.finder.indexDir()
	return a, nil
}

// Match reports whether a file may be a shard, or a directory may contain some, by its path
// relative to the root.
func (a *Arrivals) Match(path string, isDir bool) bool {
	if isDir && path == a.own && path != "" || strings.Contains(path, "\n") {
		return false // a snapshot's text has one line per path
	}
	t := &a.finder.Target
	if t.LeavesOut(path, a.finder.Format.Name) != "" {
		return false
	}
	p := t.pattern
	switch {
	case p == nil:
		return true
	case path == ".":
		return false
	case isDir:
		return p.match(path, true)
	}
	return p.marks(path)
}

// LeavesOut returns why a name that Match refuses is left out; "" if the target does not name it.
func (a *Arrivals) LeavesOut(path string) string {
	if !a.MayName(path) {
		return ""
	}
	if strings.Contains(path, "\n") {
		return "its name has a line break"
	}
	return a.finder.Target.LeavesOut(path, a.finder.Format.Name)
}

// ownName is lsiofs's own directory in the directory of a growing dataset: runs, and the index.
const ownName = ".lsiofs"

// MayName reports whether the target may name a path, or files below it.
func (a *Arrivals) MayName(path string) bool {
	return path != ownName && !strings.HasPrefix(path, ownName+"/") && (a.own == "" || path != a.own && !strings.HasPrefix(path, a.own+"/")) && a.finder.mayName(path)
}

// Judgement is what a file is by itself. A file whose name does not imply a format is of the format
// of its naming pattern (NamingOf), which the caller must determine.
type Judgement struct {
	// Format is the name of the format that the file's name implies, or else that its content
	// shows; "" for none.
	Format string
	// Named is whether the name implies the format.
	Named bool
	// Err is the error if the file's content was needed and could not be read.
	Err error
}

// IsShard reports whether a judged file is a shard of format f: by its name; by its content, unless
// the names of the shards imply the format (named); or because another file of its naming pattern
// is one (ofNaming).
func (j Judgement) IsShard(f format.Format, path string, named, ofNaming bool) bool {
	if j.Format == f.Name() {
		return j.Named || !named
	}
	return ofNaming && (!j.Named || Takes(f, path))
}

// Judge judges files when no format was requested by name. It opens files whose names do not imply
// a format, or which two formats claim. It returns only ctx's error.
func (a *Arrivals) Judge(ctx context.Context, objects []storage.Object) ([]Judgement, error) {
	f := a.finder
	list, files := make([]Judgement, len(objects)), make([]file, len(objects))
	var wanted []int
	placeOf := map[string]int{}
	for i, o := range objects {
		n := formats.ParseName(o.Path)
		files[i], placeOf[o.Path] = file{Shard: Shard{Object: o, Codec: n.Codec}, name: n}, i
		list[i].Format, list[i].Named = n.Format, n.Format != ""
		if o.SizeBytes > 0 && (n.Format == "" || contested(&files[i])) {
			wanted = append(wanted, i)
		}
	}
	var failed sync.Mutex
	f.onUnreadable = func(o storage.Object, err error) {
		failed.Lock()
		defer failed.Unlock()
		list[placeOf[o.Path]].Err = fmt.Errorf("it can't be read to find out whether it is a shard: %w", err)
	}
	shown := make([]string, len(files))
	err := f.look(ctx, files, wanted, shown)
	if err != nil {
		return nil, err
	}
	for _, i := range wanted {
		if shown[i] != "" {
			list[i].Format = shown[i]
		}
	}
	return list, nil
}

// AsShard returns a file as a shard of format f.
func AsShard(f format.Format, o storage.Object) Shard {
	s := Shard{Object: o, Codec: formats.ParseName(o.Path).Codec}
	if own, ok := f.(format.Coded); ok {
		s.Codec = own.Codec(o.Path, s.Codec)
	}
	return s
}

// OfFormat returns the Found, without Shards, of a dataset in a format whose first shard has that
// path.
func OfFormat(format spec.Format, path string) (Found, error) {
	unpacker, err := formats.New(format)
	if err != nil {
		return Found{}, fmt.Errorf("format %s: %w", format.Name, err)
	}
	return Found{Format: format.WithDefaults(), Unpacker: unpacker, StreamExtension: unpacker.StreamExtension(Stem(path))}, nil
}

// Stem returns a shard's path without its codec's extension.
func Stem(path string) string {
	stem, _ := formats.Split(path)
	return stem
}

// Look is the state of a file at one look.
type Look struct {
	SizeBytes    int64
	ModTimeNanos int64
	Inode        uint64
	// Written means that a process has it open for writing, Unknown that this can't be determined
	// on its file system.
	Written, Unknown bool
}

// same reports whether a file may be unchanged between two looks.
func (l Look) same(other Look) bool {
	return l.SizeBytes == other.SizeBytes && l.ModTimeNanos == other.ModTimeNanos && l.Inode == other.Inode
}

const (
	// settleLooks is the time between two equal looks after which a file that no process writes is
	// settled.
	settleLooks = time.Second
	// DefaultSettle and NetworkSettle are how long a file must stay unchanged if it is unknown
	// whether a process is writing it. On network file systems, attributes of files can be up to a
	// minute old.
	DefaultSettle = 30 * time.Second
	NetworkSettle = 70 * time.Second
)

// Settling tracks the files that are not settled yet. It must not be used concurrently. The zero
// value, with Quiet set, tracks none.
type Settling struct {
	// Quiet is how long a file must stay unchanged if it is unknown whether a process is writing
	// it.
	Quiet time.Duration
	files map[string]*settlingFile
}

type settlingFile struct {
	look  Look
	since time.Time // when it last changed
	free  time.Time // since when no process writes it; zero: one does, or that is unknown
}

// See records a look at a file, and reports whether it is settled: then it is no longer tracked. If
// not, the next look should be after wait.
func (s *Settling) See(path string, l Look, now time.Time) (settled bool, wait time.Duration) {
	f := s.files[path]
	if f == nil || !f.look.same(l) {
		if s.files == nil {
			s.files = map[string]*settlingFile{}
		}
		f = &settlingFile{since: now}
		s.files[path] = f
	}
	f.look = l
	switch {
	case l.Written || l.Unknown:
		f.free = time.Time{}
	case f.free.IsZero():
		f.free = now
	}
	left := settleLooks
	switch {
	case l.Written:
		return false, left
	case l.Unknown:
		left = f.since.Add(s.Quiet).Sub(now)
	default:
		left = f.free.Add(settleLooks).Sub(now)
	}
	if left > 0 {
		return false, left
	}
	s.Forget(path)
	return true, 0
}

// Forget stops tracking a file that no longer exists.
func (s *Settling) Forget(path string) {
	if delete(s.files, path); len(s.files) == 0 {
		s.files = nil // a map never shrinks
	}
}

// Len returns the number of files tracked.
func (s *Settling) Len() int { return len(s.files) }

const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
	// AdmitAfter is how long a damaged file must stay unchanged before it is assumed to be final.
	AdmitAfter = 10 * time.Minute
)

// Damaged is a settled file that could not be indexed: it may not be complete yet.
type Damaged struct {
	look  Look
	since time.Time
	again time.Time
	wait  time.Duration
	tries int
}

// See records that a file in the state of l was damaged, and reports whether that should be logged:
// once for each state of a file.
func (d *Damaged) See(l Look, now time.Time) (first bool) {
	if first = d.tries == 0 || !d.look.same(l); first {
		*d = Damaged{look: l, since: now}
	}
	d.tries++
	d.wait = min(max(2*d.wait, firstRetry), lastRetry)
	d.again = now.Add(d.wait)
	return first
}

// Again reports whether indexing a file should be tried again: it has changed, or some time has
// passed: a minute, then two, and so on up to an hour.
func (d *Damaged) Again(l Look, now time.Time) bool { return !d.look.same(l) || !now.Before(d.again) }

// Next returns when indexing an unchanged file should be tried again.
func (d *Damaged) Next() time.Time { return d.again }

// AdmitAt returns when a damaged file will have been unchanged for AdmitAfter.
func (d *Damaged) AdmitAt() time.Time { return d.since.Add(AdmitAfter) }

// Admit reports whether a file has been unchanged for so long that its damaged records may be
// skipped, if the user allows that.
func (d *Damaged) Admit(now time.Time) bool { return now.Sub(d.since) >= AdmitAfter }

// UnfinishedReason is why a file that is not Finished is left out.
const UnfinishedReason = "its name is that of a file that is being written"

// unfinished are the suffixes that programs add to the names of files while they write them.
var unfinished = []string{".tmp", ".part", ".partial", "~", "._COPYING_"}

// Finished reports whether a file of that name may be a shard: its name does not mark it as being
// written.
func Finished(name string) bool {
	return !slices.ContainsFunc(unfinished, func(end string) bool { return strings.HasSuffix(name, end) })
}
