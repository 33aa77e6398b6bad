package fs

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// CeilingExtension is the extension of the streams of NewCeiling.
const CeilingExtension = ".bin"

// CeilingConfig configures NewCeiling.
type CeilingConfig struct {
	MountPoint  string
	StreamBytes int64 // size of each worker's stream
	Rings       bool  // like Config.Rings
	Log         *slog.Logger
}

// NewCeiling mounts streams whose bytes all come from one buffer in memory. It measures the maximum
// throughput of this server: mount options, flags, nodes, handles and replies are those of real
// streams, but every answer is ready. Each stream has StreamBytes; names are those of any mount.
func NewCeiling(ctx context.Context, c CeilingConfig) (*Mount, error) {
	d := newCeiling(c.StreamBytes)
	return newMount(ctx, Config{Dataset: d, MountPoint: c.MountPoint, Rings: c.Rings, Log: c.Log}, d.set)
}

// ceiling is a dataset of one block, repeated. A block counts as a record.
type ceiling struct {
	block       []byte // long enough for one reply at any offset in a period
	streamBytes int64
	started     time.Time
	meter       meter.Meter
}

var _ Dataset = (*ceiling)(nil)

// ceilingPeriod is the number of bytes after which a stream repeats itself.
const ceilingPeriod = 256

func newCeiling(streamBytes int64) *ceiling {
	c := &ceiling{block: make([]byte, stream.MaxReadBytes+ceilingPeriod), streamBytes: streamBytes, started: time.Now()}
	for i := range c.block {
		c.block[i] = byte(i * 7)
	}
	return c
}

// Spec returns the defaults, with a dataset path that is below no mount point.
func (c *ceiling) Spec() spec.Spec {
	s := spec.Default()
	s.Dataset = os.DevNull
	return s
}

// Crops returns false; the methods about cubes are not called then.
func (*ceiling) Crops() bool                                                     { return false }
func (*ceiling) Cubes() []string                                                 { return nil }
func (*ceiling) Coordinates(context.Context, int) ([]pipeline.Coordinate, error) { return nil, nil }
func (*ceiling) Coordinate(context.Context, int, string) ([]byte, error)         { return nil, nil }

func (c *ceiling) Fingerprint() string                                   { return "0" }
func (c *ceiling) Records() uint64                                       { return uint64(c.streamBytes / stream.MaxReadBytes) }
func (c *ceiling) EpochRecords(context.Context, uint64) (uint64, error)  { return c.Records(), nil }
func (c *ceiling) DescribeEpoch(context.Context, uint64) ([]byte, error) { return c.Describe() }
func (c *ceiling) StreamExtension() string                               { return CeilingExtension }
func (c *ceiling) Describe() ([]byte, error)                             { return []byte("{}\n"), nil }
func (c *ceiling) Meter() *meter.Meter                                   { return &c.meter }
func (c *ceiling) Status() pipeline.Status                               { return pipeline.Status{Uptime: time.Since(c.started)} }

// Set is never called: newMount gets the sets from set.
func (c *ceiling) Set(context.Context, uint64, []order.Done, spec.Assignment) (*stream.Set, error) {
	return nil, os.ErrInvalid
}

func (c *ceiling) set(context.Context, uint64, []order.Done, spec.Assignment) (fileSet, error) {
	return ceilingSet{c}, nil
}

// ceilingSet is every worker's files; all three kinds have the same bytes.
type ceilingSet struct{ *ceiling }

var _ fileSet = ceilingSet{}

func (s ceilingSet) Remaining() uint64 { return s.Records() }

func (s ceilingSet) SizeBytes(context.Context, uint64, stream.Kind) (int64, error) {
	return s.streamBytes, nil
}

func (s ceilingSet) WholeRecords(_ context.Context, _ uint64, _ stream.Kind, mark int64) (uint64, error) {
	return uint64(mark / stream.MaxReadBytes), nil
}

func (s ceilingSet) Open(context.Context, uint64, stream.Kind) (fileHandle, error) {
	return ceilingHandle(s), nil
}

type ceilingHandle struct{ *ceiling }

// ReadAt answers with one slice, like a stream of short records.
func (h ceilingHandle) ReadAt(_ context.Context, r *stream.Reply, off int64, n int) error {
	if n = int(min(int64(n), h.streamBytes-off)); n > 0 {
		r.Slices = append(r.Slices, h.block[off%ceilingPeriod:][:n])
	}
	return nil
}

func (ceilingHandle) BeforeRecords() int64 { return 0 }
func (ceilingHandle) Close()               {}
