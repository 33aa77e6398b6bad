// Package fs presents a dataset as a tree of files through FUSE: names, handles,
// the control file `checkpoint`, errors to errno. It knows nothing of formats.
package fs

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// Dataset is what a mount presents. *pipeline.Dataset is one; tests have a
// small one in memory for schedules and faults that files can't show.
type Dataset interface {
	Spec() spec.Spec
	Fingerprint() string
	Records() uint64
	StreamExtension() string
	Set(ctx context.Context, epoch uint64, done []order.Done, deal spec.Deal) (*stream.Set, error)
	Status() pipeline.Status
	Describe() ([]byte, error)
}

var _ Dataset = (*pipeline.Dataset)(nil)

// Config of a mount.
type Config struct {
	Dataset    Dataset
	MountPoint string
	// Position is where the worker files begin.
	Position checkpoint.Position
	// Explain is checkpoint.Subject's.
	Explain    func(fingerprint string) string
	AllowOther bool
	Log        *slog.Logger
	// Version is shown in README and status.
	Version string
}

// Mount is a live mount.
type Mount struct {
	// fields belong to the implementation
}

// New mounts. A stale mount at the point is healed; a live one, a point that is
// no directory, and a point inside the dataset are refused. When New returns,
// the tree answers.
func New(ctx context.Context, c Config) (*Mount, error) { return nil, errNotBuilt }

// Wait returns when the tree has been unmounted, by Unmount or from outside.
func (m *Mount) Wait() error { panic(errNotBuilt) }

// Unmount unmounts; while files are in use it detaches the tree, lets readers
// finish until ctx ends, and then returns.
func (m *Mount) Unmount(ctx context.Context) error { panic(errNotBuilt) }

var errNotBuilt = errors.New("not built yet")
