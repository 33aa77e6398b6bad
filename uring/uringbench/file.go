package uringbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// warmBlockBytes is what Warm and Make read and write at a time.
const warmBlockBytes = 1 << 20

// Make makes a file of the given size, with contents that no file system can compress or leave
// sparse, and syncs it to disk. An existing file of this size with all its blocks is used as it is.
// The caller removes the file.
func Make(ctx context.Context, path string, bytes int64) (err error) {
	if made(path, bytes) {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	random := rand.NewChaCha8([32]byte{1})
	block := make([]byte, warmBlockBytes)
	for left := bytes; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, _ = random.Read(block) // never fails
		n, err := f.Write(block[:min(left, warmBlockBytes)])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return f.Sync()
}

// made reports whether a file is as Make would make it.
func made(path string, bytes int64) bool {
	var st unix.Stat_t
	const sector = 512 // unit of st_blocks, for all file systems
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == bytes && st.Blocks*sector >= bytes
}

// Warm reads the job's data once, so that each job starts from the same state. For a cached job
// that is a full page cache. For a direct job the file is not in the page cache, but the caches
// below it (the host's, the disk's) are full.
func Warm(ctx context.Context, j Job) error {
	f, numBlocks, err := j.open()
	if err != nil {
		return err
	}
	if j.Direct {
		// Dirty pages stay, which is why Make syncs the file.
		err = unix.Fadvise(f.FD(), 0, 0, unix.FADV_DONTNEED)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("empty the page cache of %s: %w", j.Path, err)
	}
	region := j.ShiftBytes + numBlocks*int64(j.BlockBytes)
	_, err = Run(ctx, Job{
		Path: j.Path, RegionBytes: region, Direct: j.Direct, Mode: uring.ModePread,
		BlockBytes: int(min(region, warmBlockBytes)), Depth: 8, Bytes: region,
	})
	return err
}
