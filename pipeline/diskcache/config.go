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

// Config is what a cache needs. Dir, Below, Engine, Identify and BoundBytes are
// required.
type Config struct {
	Dir    string          // it is made where there is none
	Below  storage.Storage // what the cache is of; closed with the cache
	Engine uring.Engine    // reads the cache's files; the caller's, who closes it afterwards
	// Identify names the bytes of an object that was listed. Where it can't, the object
	// is not cached. It must not wait, and may be called concurrently.
	Identify func(storage.Object) (Identity, bool)

	// BoundBytes is how much the directory may take on its disk, in blocks, all
	// objects of all processes together.
	BoundBytes int64
	// ShareBytes, of these, are for what passes through: pages that leave when Done
	// says so. 0 where the bound holds everything.
	ShareBytes int64
	// ReserveBytes is what is left free of the file system.
	ReserveBytes int64

	// BufferBytes bounds the memory for what comes from below and is not written yet.
	BufferBytes int64
	// MaxReadBytes is the size of the largest read below, a multiple of 4096.
	MaxReadBytes int64
	// GapBytes: what is missing on both sides of so many bytes or fewer that are here is
	// read in one.
	GapBytes int64
	// MaxFiles is how many objects are open at a time; each has two descriptors. They are
	// never more than the cache's part of those that the process may have (package
	// descriptors).
	MaxFiles int

	Log *slog.Logger // nil: nothing is logged
	// Clock is for tests; zero is the machine's.
	Clock Clock

	disk    disk // nil: the kernel
	noSeals bool // for tests of what is read page by page
}

// Clock tells the time and wakes up.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// DefaultConfig has what need not be chosen. 8 MiB is what parts of a fill are, and what
// a bucket serves at full speed; 64 MiB of buffers are 128 chunks of 337 KB on their way.
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

// fillIn sets what was left out.
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
