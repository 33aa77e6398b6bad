package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Counts is how far a run is.
type Counts struct {
	Shards    uint64 `json:"shards"`            // that there are
	Filtered  uint64 `json:"shards_filtered"`   // in this run
	Unchanged uint64 `json:"shards_unchanged"`  // had a result
	Dropped   uint64 `json:"shards_dropped"`    // filtered, and nothing of them is left
	Failed    uint64 `json:"shards_failed"`     // left out
	Removed   uint64 `json:"shards_removed"`    // results deleted, since their sources are gone
	Writing   uint64 `json:"files_not_settled"` // that somebody writes, or may write
	Passed    uint64 `json:"files_passed_over"` // that are no shards
	UnitsIn   uint64 `json:"units_in"`          // of the shards that were filtered
	UnitsOut  uint64 `json:"units_out"`         //
	UnitsLost uint64 `json:"units_failed"`      // left out, since the filter failed on them
	Records   uint64 `json:"records_out"`       //
	BytesIn   int64  `json:"bytes_in"`          // of the shards' files that were filtered
	BytesOut  int64  `json:"bytes_out"`         // of their results
	Bytes     int64  `json:"bytes_done"`        // of the shards' files, with those that had a result
	Total     int64  `json:"bytes_total"`       // of all of them
}

// Progress has the Counts of a run that goes on. It is safe for concurrent use.
type Progress struct {
	mu     sync.Mutex
	counts Counts
}

// Counts is how far the run is.
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

// Failure is what a filter, or a source, is to blame for.
type Failure struct {
	Shard string
	Unit  string // "" for the whole shard
	Err   error
	// Source says that the shard itself is to blame: it is damaged, has changed, or can't be read.
	Source bool
}

func (f *Failure) Error() string {
	if f.Unit != "" {
		return fmt.Sprintf("%s: %v", f.Unit, f.Err)
	}
	return fmt.Sprintf("%s: %v", f.Shard, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// unread says whether no bytes of the shard came, which says nothing of what they are.
func (f *Failure) unread() bool {
	_, file := errors.AsType[*fs.PathError](f.Err)
	_, located := errors.AsType[*storage.Error](f.Err)
	return f.Source && (file || located)
}

// failed is a Failure of the filter at a shard, unless ctx has ended, or err is one.
func failed(ctx context.Context, s *source, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	return &Failure{Shard: s.name(), Err: err}
}

// damaged is a Failure of the shard itself.
func damaged(ctx context.Context, s *source, err error) error {
	err = failed(ctx, s, err)
	if f, ok := errors.AsType[*Failure](err); ok && f.Unit == "" {
		f.Source = true
	}
	return err
}
