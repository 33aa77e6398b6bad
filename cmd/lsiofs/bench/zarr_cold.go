package bench

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
)

// coldChunk is about the size of a chunk of an uncompressed array.
const coldChunk = 128 << 10

// measureColdFio makes fio read a file past the page cache: what the disk delivers in reads of the
// size of chunks.
func (a *arrays) measureColdFio(ctx context.Context) (reading, error) {
	files, err := filepath.Glob(filepath.Join(a.data, fixedOnes, "*"))
	if err != nil || len(files) == 0 {
		return reading{}, notMeasured("there is no file of fixed records")
	}
	slices.Sort(files)
	r, err := uringbench.Fio(ctx, uringbench.Job{
		Path: files[0], BlockBytes: coldChunk, Depth: coldDepth, Direct: true, Random: true, Duration: a.slot, Mode: uring.ModeAuto,
	}, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return reading{}, notMeasured("%w", err) // it is missing, or may not use io_uring
	}
	return fromJob(r), err
}

// measureColdCrops makes a mount read past the page cache. It counts the bytes that the mount reads
// from the disk.
func (a *arrays) measureColdCrops(ctx context.Context) (reading, error) {
	r, err := a.readArray(ctx, "cold none", "none", ".npy", zarrRandomMemory, "--shuffle", "full", "--direct", "on")
	r.bytes = int64(r.readBytes)
	return r, err
}
