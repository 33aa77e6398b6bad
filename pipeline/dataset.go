package pipeline

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/uring"
)

// Options are what Open needs beside the spec.
type Options struct {
	Log      *slog.Logger
	Progress func(catalog.Progress)
	// Rebuild indexes every shard again.
	Rebuild bool
}

// Dataset is an open dataset: its catalog, its order settings, its fetcher. It
// is safe for concurrent use.
type Dataset struct {
	// fields belong to the implementation
}

// Open validates the spec, opens or builds the catalog and starts the fetcher.
func Open(ctx context.Context, s spec.Spec, o Options) (*Dataset, error) { return nil, errNotBuilt }

// Close frees everything. No handle may be in use.
func (d *Dataset) Close() error { panic(errNotBuilt) }

// Spec is what Open was given, with auto and defaults resolved.
func (d *Dataset) Spec() spec.Spec { panic(errNotBuilt) }

func (d *Dataset) Catalog() *catalog.Catalog { panic(errNotBuilt) }

// Fingerprint and Records are the catalog's.
func (d *Dataset) Fingerprint() string { panic(errNotBuilt) }
func (d *Dataset) Records() uint64     { panic(errNotBuilt) }

// StreamExtension is the ending of stream names, with the dot.
func (d *Dataset) StreamExtension() string { panic(errNotBuilt) }

// Set gives the files of what is left of epoch after done, dealt as deal says.
// Sets are cached, a bounded number of them, so asking again is cheap; a set
// that was handed out stays good whatever the cache drops.
func (d *Dataset) Set(ctx context.Context, epoch uint64, done []order.Done, deal spec.Deal) (*stream.Set, error) {
	return nil, errNotBuilt
}

// Status is a snapshot of what the dataset is doing.
type Status struct {
	Engine uring.Status `json:"engine"`
	Fetch  fetch.Stats  `json:"fetch"`
}

func (d *Dataset) Status() Status { panic(errNotBuilt) }

// Describe is dataset.json: fingerprint, shards, records, bytes, spec; a pure
// function of the catalog and the spec, so its size is exact.
func (d *Dataset) Describe() ([]byte, error) { panic(errNotBuilt) }

var errNotBuilt = errors.New("not built yet")
