package diskcache

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/descriptors"
	"github.com/lsiofs/lsiofs/uring"
)

// Config configures a cache. Dir, Below, Engine, Identify and BoundBytes are required.
type Config struct {
	Dir    string          // created if it does not exist
	Below  storage.Storage // the storage to cache; closed with the cache
	Engine uring.Engine    // reads the cache's files; the caller closes it after the cache
	// Identify names the bytes of a listed object. If it can't, the object is not cached. It must
	// not wait, and may be called concurrently.
	Identify func(storage.Object) (Identity, bool)

	// BoundBytes is how much disk space the directory may take, in blocks, for all objects of all
	// processes together.
	BoundBytes int64
	// ShareBytes is the part of it for data that passes through: pages that are freed when they are
	// passed. 0 if the bound holds everything.
	ShareBytes int64
	// ReserveBytes is how much of the file system is left free.
	ReserveBytes int64

	// BufferBytes bounds the memory for data that has arrived and is not written yet.
	BufferBytes int64
	// MaxReadBytes is the size of the largest read below, a multiple of 4096.
	MaxReadBytes int64
	// GapBytes is the size up to which cached pages between missing ones are read again, so that
	// one read fetches all.
	GapBytes int64
	// MaxFiles is how many objects may be open at a time. Each takes two descriptors, within the
	// cache's part of the process's limit (package descriptors).
	MaxFiles int

	Log *slog.Logger // nil for none
	// Clock is for tests; the zero value is the system's.
	Clock Clock

	disk    disk // nil: the kernel
	noSeals bool // for tests of reads page by page
}

// Clock returns the time, and timers.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// DefaultConfig returns the defaults. 8 MiB is the size of a part of the fill, at which a bucket
// serves at full speed. 64 MiB of buffers hold 170 chunks of 337 KB in transit.
func DefaultConfig() Config {
	return Config{BufferBytes: 64 << 20, MaxReadBytes: 8 << 20, MaxFiles: 2048}
}

// Validate reports all problems at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Dir == "", "dir must not be empty")
	bad(c.Below == nil, "below must be given")
	bad(c.Engine == nil, "engine must be given")
	bad(c.Identify == nil, "identify must be given")
	bad(c.BoundBytes <= 0, "bound (%d bytes) must be > 0", c.BoundBytes)
	bad(c.ShareBytes < 0 || c.ShareBytes > c.BoundBytes, "share (%d bytes) must be >= 0 and at most the bound (%d bytes)", c.ShareBytes, c.BoundBytes)
	bad(c.ReserveBytes < 0, "reserve (%d bytes) must be >= 0", c.ReserveBytes)
	bad(c.BufferBytes < 1, "buffer (%d bytes) must be > 0", c.BufferBytes)
	bad(c.MaxReadBytes < pageBytes || c.MaxReadBytes%pageBytes != 0, "max_read (%d bytes) must be a multiple of %d", c.MaxReadBytes, pageBytes)
	bad(c.GapBytes < 0, "gap (%d bytes) must be >= 0", c.GapBytes)
	bad(c.MaxFiles < 1, "max_files (%d) must be > 0", c.MaxFiles)
	return errors.Join(errs...)
}

// fillIn sets the defaults of optional fields.
func (c *Config) fillIn() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock.Now == nil {
		c.Clock.Now = time.Now
	}
	if c.Clock.After == nil {
		c.Clock.After = time.After
	}
	if c.disk == nil {
		c.disk = kernel{}
	}
	c.MaxFiles = max(1, descriptors.Cache.Of(2, 2*c.MaxFiles)/2)
}
