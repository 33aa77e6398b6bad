package filter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// verdict is what to do with a shard.
type verdict int

const (
	isDone   verdict = iota // it has a result
	isToDo                  // it must be filtered
	isOthers                // the file with the result's name was not made by a filter
)

// presence is the kind of what exists under the name of a result.
type presence int

const (
	absent presence = iota
	aFile
	aStranger // a directory, a link, …
)

// found is what is known about a result.
type found struct {
	entry    ledger.Entry
	known    bool // the ledger has an entry
	presence presence
	sum      ledger.Sum // of a file; only relevant if the entry is of this source and filter
}

// decide returns the verdict on a shard.
func decide(source, filter ledger.Sum, f found) verdict {
	switch {
	case f.presence == aStranger, !f.known && f.presence == aFile:
		return isOthers
	case !f.known || !f.entry.Of(source, filter):
		return isToDo
	case f.entry.Result == ledger.Nothing:
		if f.presence == absent {
			return isDone
		}
	case f.presence == aFile && f.entry.Result == f.sum:
		return isDone
	}
	return isToDo
}

// source is a shard to be filtered.
type source struct {
	discover.Shard
	path string // of the file
	sum  ledger.Sum
	mode fs.FileMode
}

// name returns the shard's path below SRC, which is also the result's below DST.
func (s *source) name() string { return s.Object.Path }

// open opens the file, which must be unchanged since it was listed.
func (s *source) open() (*os.File, error) {
	f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &Failure{Shard: s.name(), Err: err, Source: true}
	}
	if err := s.unchanged(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// findCodec determines the shard's compression from its first bytes.
func (s *source) findCodec(f *os.File, format format.Format) error {
	head := make([]byte, formats.CodecHeadBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	s.Codec = formats.CodecOf(format, s.Object.Path, head[:n])
	return nil
}

// unchanged returns an error if an open file is not the one that was listed.
func (s *source) unchanged(f *os.File) error {
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return &Failure{Shard: s.name(), Err: err, Source: true}
	}
	o := storage.Object{SizeBytes: now.Size, Version: storage.Version{ModTimeNanos: now.Mtim.Nano(), Inode: now.Ino}}
	s.mode = fs.FileMode(now.Mode).Perm()
	if storage.Compare(s.Object, o) != nil {
		return &Failure{Shard: s.name(), Err: errChanged, Source: true}
	}
	return nil
}

var errChanged = errors.New("it changed while it was being filtered: wait until it is written, and run again")

// examine returns the verdict on a shard. It reads the shard once, and the result too if it may be
// the right one.
func (r *run) examine(ctx context.Context, d discover.Shard) (*source, verdict, error) {
	s := &source{Shard: d, path: filepath.Join(r.Source, d.Object.Path)}
	f, err := s.open()
	if err != nil {
		return s, isToDo, err
	}
	s.sum, err = sumOf(ctx, f)
	if err == nil {
		err = s.findCodec(f, r.format.Unpacker)
	}
	if err == nil {
		err = s.unchanged(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return s, isToDo, damaged(ctx, s, err)
	}
	result := filepath.Join(r.Destination, s.name())
	var x found
	x.entry, x.known = r.ledger.Get(s.name())
	x.presence, err = look(result)
	if err == nil && x.presence == aFile && x.known && x.entry.Of(s.sum, r.filterSum) {
		x.sum, err = sumOfFile(ctx, result)
	}
	if err != nil {
		return s, isToDo, fmt.Errorf("DST: %w", err)
	}
	v := decide(s.sum, r.filterSum, x)
	if v == isOthers {
		err = fmt.Errorf("%s is there, and was not made by a filter: move it away, or name another DST", result)
	}
	return s, v, err
}

// look returns what exists under a name.
func look(path string) (presence, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return absent, nil
	case err != nil:
		return absent, err
	case info.Mode().IsRegular():
		return aFile, nil
	}
	return aStranger, nil
}

func sumOfFile(ctx context.Context, path string) (ledger.Sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return ledger.Sum{}, err
	}
	sum, err := sumOf(ctx, f)
	return sum, errors.Join(err, f.Close())
}

func sumOf(ctx context.Context, r io.Reader) (ledger.Sum, error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return ledger.Sum{}, err
		}
		n, err := r.Read(buf)
		_, _ = h.Write(buf[:n])
		if err == io.EOF {
			return ledger.Sum(h.Sum(nil)), nil
		} else if err != nil {
			return ledger.Sum{}, err
		}
	}
}
