package fs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// fileSet is what nodes need of a *stream.Set.
type fileSet interface {
	// Remaining is the number of remaining records, before the tail rule.
	Remaining() uint64
	SizeBytes(ctx context.Context, w uint64, k stream.Kind) (int64, error)
	WholeRecords(ctx context.Context, w uint64, k stream.Kind, mark int64) (uint64, error)
	Open(ctx context.Context, w uint64, k stream.Kind) (fileHandle, error)
}

// fileHandle is what handles need of a *stream.Handle.
type fileHandle interface {
	ReadAt(ctx context.Context, r *stream.Reply, off int64, n int) error
	// BeforeRecords is the offset of the first record.
	BeforeRecords() int64
	Close()
}

// openSet returns the files for the rest of epoch after done.
type openSet func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error)

// datasetSets returns the sets of a dataset.
func datasetSets(d Dataset) openSet {
	return func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error) {
		s, err := d.Set(ctx, epoch, done, deal)
		if err != nil {
			return nil, err
		}
		again := func(ctx context.Context) (*stream.Set, error) { return d.Set(ctx, epoch, done, deal) }
		return streamSet{s, again}, nil
	}
}

// streamSet is a set of a dataset. If its shards were closed meanwhile, because they were unused,
// it asks for the set again.
type streamSet struct {
	*stream.Set
	again func(context.Context) (*stream.Set, error)
}

func (s streamSet) Remaining() uint64 { return s.View().Remaining() }

func (s streamSet) SizeBytes(ctx context.Context, w uint64, k stream.Kind) (n int64, err error) {
	err = s.retry(ctx, func(x *stream.Set) (err error) { n, err = x.SizeBytes(ctx, w, k); return err })
	return n, err
}

func (s streamSet) WholeRecords(ctx context.Context, w uint64, k stream.Kind, mark int64) (n uint64, err error) {
	err = s.retry(ctx, func(x *stream.Set) (err error) { n, err = x.WholeRecords(ctx, w, k, mark); return err })
	return n, err
}

func (s streamSet) retry(ctx context.Context, ask func(*stream.Set) error) error {
	x := s.Set
	for {
		err := ask(x)
		if !errors.Is(err, stream.ErrRetired) {
			return err
		}
		if x, err = s.again(ctx); err != nil {
			return err
		}
	}
}

func (s streamSet) Open(ctx context.Context, w uint64, k stream.Kind) (fileHandle, error) {
	x := s.Set
	for {
		h := x.Open(w, k)
		if !h.Retired() {
			return h, nil
		}
		h.Close()
		var err error
		if x, err = s.again(ctx); err != nil {
			return nil, err
		}
	}
}

var (
	_ fileSet    = streamSet{}
	_ fileHandle = (*stream.Handle)(nil)
)

// Names in the root directory.
const (
	nameREADME     = "README"
	nameCheckpoint = "checkpoint"
	nameDataset    = "dataset.json"
	nameStatus     = "status"
	nameStatusJSON = "status.json"
	nameMetrics    = "metrics"
	nameCoords     = "coords"

	prefixWorker = "worker-"
	prefixEpoch  = "epoch-"
	prefixFrom   = "from-"

	extIDs     = ".ids"
	extOffsets = ".offsets"
	extCrops   = ".crops.npy"
	extNpy     = ".npy" // of coordinates
)

// parseNumber parses a decimal number below 2^64 in the form that this tree writes: only digits, no
// leading zeros, so that every file has one name.
func parseNumber(s string) (uint64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// parsePrefixed parses prefix followed by a number.
func parsePrefixed(name, prefix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	return parseNumber(digits)
}

// fileName is the name of one of a worker's files, without directory.
type fileName struct {
	worker uint64
	// of is the number of workers, 0 in the root, where it is the mount's.
	of   uint64
	kind stream.Kind
}

// format returns the name; ext is the stream's extension with its dot.
func (f fileName) format(ext string) string {
	b := append(make([]byte, 0, 48), prefixWorker...)
	b = strconv.AppendUint(b, f.worker, 10)
	if f.of != 0 {
		b = append(b, "-of-"...)
		b = strconv.AppendUint(b, f.of, 10)
	}
	return string(append(b, kindExtension(f.kind, ext)...))
}

// fileOf parses the name of a worker's file, of a kind that exists.
func (t *tree) fileOf(name string) (fileName, bool) {
	f, ok := parseFileName(name, t.ext)
	return f, ok && slices.Contains(t.kinds, f.kind)
}

// parseFileName parses worker-W.EXT (of is 0) and worker-w-of-W.EXT. A name whose worker is not
// below the number of workers is invalid.
func parseFileName(name, ext string) (fileName, bool) {
	rest, ok := strings.CutPrefix(name, prefixWorker)
	if !ok {
		return fileName{}, false
	}
	dot := strings.IndexByte(rest, '.')
	if dot < 0 {
		return fileName{}, false
	}
	var f fileName
	switch rest[dot:] {
	case ext:
		f.kind = stream.Data
	case extIDs:
		f.kind = stream.IDs
	case extOffsets:
		f.kind = stream.Offsets
	case extCrops:
		f.kind = stream.Crops
	default:
		return fileName{}, false
	}
	worker, of, dealt := strings.Cut(rest[:dot], "-of-")
	if f.worker, ok = parseNumber(worker); !ok {
		return fileName{}, false
	}
	if dealt {
		if f.of, ok = parseNumber(of); !ok || f.of > spec.MaxWorkers || f.worker >= f.of {
			return fileName{}, false
		}
	}
	return f, true
}

func kindExtension(k stream.Kind, ext string) string {
	switch k {
	case stream.IDs:
		return extIDs
	case stream.Offsets:
		return extOffsets
	case stream.Crops:
		return extCrops
	default:
		return ext
	}
}

// maxExtensionBytes leaves room for the rest of a name.
const maxExtensionBytes = 64

// checkExtension returns an error if streams can't be named with the extension, which for some
// formats comes from the shards: it is part of names that programs list.
func checkExtension(ext string) error {
	if ext == extIDs || ext == extOffsets || ext == extCrops || len(ext) > maxExtensionBytes || printable.Line(ext) != ext {
		return fmt.Errorf("streams would be named %s0%s, after the first shard, but that name is taken or not printable: rename the shards", prefixWorker, printable.Line(ext))
	}
	return nil
}

// kinds are the files of a worker, in listing order; for crops there is one more.
var (
	kinds     = []stream.Kind{stream.Data, stream.IDs, stream.Offsets}
	cropKinds = []stream.Kind{stream.Data, stream.IDs, stream.Offsets, stream.Crops}
)

// kindsOf returns the kinds of files for a dataset.
func kindsOf(d Dataset) []stream.Kind {
	if d.Crops() {
		return cropKinds
	}
	return kinds
}

// scratchAllowed reports whether a scratch file may have this name. Names that look like a file of
// the tree are not allowed, because a typing error would then create them.
func scratchAllowed(name string) bool {
	switch name {
	case nameCoords, nameREADME, nameCheckpoint, nameDataset, nameStatus, nameStatusJSON, nameMetrics:
		return false
	}
	return !strings.HasPrefix(name, prefixWorker) && !strings.HasPrefix(name, prefixEpoch) && !strings.HasPrefix(name, prefixFrom)
}
