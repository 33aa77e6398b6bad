package plan

import (
	"errors"
	"fmt"
)

// Config says what reads are good for a storage.
type Config struct {
	// MergeGapBytes is up to how many bytes that nobody wants are read and
	// thrown away to save a request. 0 merges only what touches.
	MergeGapBytes int64
	// MaxReadBytes is the size of the largest read.
	MaxReadBytes int64
	// AlignBytes is what the places where a large range is cut are multiples
	// of; MaxReadBytes must be one. 1 cuts anywhere. Where reads begin and end
	// otherwise follows the ranges.
	AlignBytes int64
	// MaxVectors ends a read that would have more vectors, gaps included;
	// 0 for no bound (one buffer a read needs none, readv takes 1024 at most).
	// Only ranges that overlap each other can exceed it.
	MaxVectors int
}

// DefaultConfig is for local solid state disks and the page cache. From there a
// pread of 4 KiB takes 0.8 µs, and large ones get 17 GiB/s, so a request costs as
// much as some 10 KiB more in one that is made anyhow; throughput stops to grow
// near 1 MiB; a page is 4 KiB. Vectors are not bounded: who uses them does that.
func DefaultConfig() Config {
	return Config{MergeGapBytes: 8 << 10, MaxReadBytes: 1 << 20, AlignBytes: 4 << 10}
}

// Validate reports all problems at once.
func (c Config) Validate() error {
	var errs []error
	if c.MergeGapBytes < 0 {
		errs = append(errs, fmt.Errorf("merge_gap (%d) must be >= 0", c.MergeGapBytes))
	}
	if c.MaxReadBytes < 1 {
		errs = append(errs, fmt.Errorf("max_read (%d) must be >= 1", c.MaxReadBytes))
	}
	if c.AlignBytes < 1 {
		errs = append(errs, fmt.Errorf("align (%d) must be >= 1", c.AlignBytes))
	} else if c.MaxReadBytes%c.AlignBytes != 0 {
		errs = append(errs, fmt.Errorf("max_read (%d) must be a multiple of align (%d)", c.MaxReadBytes, c.AlignBytes))
	}
	if c.MaxVectors < 0 {
		errs = append(errs, fmt.Errorf("max_vectors (%d) must be >= 0", c.MaxVectors))
	}
	return errors.Join(errs...)
}
