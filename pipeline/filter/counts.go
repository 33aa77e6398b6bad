package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Counts is the progress of a run.
type Counts struct {
	Shards    uint64 `json:"shards"`            // in SRC
	Filtered  uint64 `json:"shards_filtered"`   // in this run
	Unchanged uint64 `json:"shards_unchanged"`  // already had a result
	Dropped   uint64 `json:"shards_dropped"`    // filtered, with nothing left
	Failed    uint64 `json:"shards_failed"`     // skipped
	Removed   uint64 `json:"shards_removed"`    // deleted results whose sources are gone
	Writing   uint64 `json:"files_not_settled"` // that are being written, or may be
	Passed    uint64 `json:"files_passed_over"` // that are not shards
	UnitsIn   uint64 `json:"units_in"`          // of the filtered shards
	UnitsOut  uint64 `json:"units_out"`
	UnitsLost uint64 `json:"units_failed"` // skipped, because the filter failed on them
	Records   uint64 `json:"records_out"`
	BytesIn   int64  `json:"bytes_in"`    // size of the filtered shards' files
	BytesOut  int64  `json:"bytes_out"`   // size of their results
	Bytes     int64  `json:"bytes_done"`  // size of the shards' files done, including those that already had a result
	Total     int64  `json:"bytes_total"` // size of all shards' files
}

// Progress has the Counts of a run in progress. It is safe for concurrent use.
type Progress struct {
	mu     sync.Mutex
	counts Counts
}

// Counts returns the current counts.
func (p *Progress) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Progress) change(f func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.counts)
}

// Failure is an error caused by the filter or by a source.
type Failure struct {
	Shard string
	Unit  string // "" for the whole shard
	Err   error
	// Source means that the shard itself is the cause: it is damaged, has changed, or can't be
	// read.
	Source bool
}

func (f *Failure) Error() string {
	if f.Unit != "" {
		return fmt.Sprintf("%s: %v", f.Unit, f.Err)
	}
	return fmt.Sprintf("%s: %v", f.Shard, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// unread reports whether the shard could not be read at all, which does not mean that it is
// damaged.
func (f *Failure) unread() bool {
	_, file := errors.AsType[*fs.PathError](f.Err)
	_, located := errors.AsType[*storage.Error](f.Err)
	return f.Source && (file || located)
}

// failed returns err as a Failure of the filter at a shard, unless ctx has ended, or err already is
// a Failure.
func failed(ctx context.Context, s *source, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	return &Failure{Shard: s.name(), Err: err}
}

// damaged returns err as a Failure of the shard itself.
func damaged(ctx context.Context, s *source, err error) error {
	err = failed(ctx, s, err)
	if f, ok := errors.AsType[*Failure](err); ok && f.Unit == "" {
		f.Source = true
	}
	return err
}
