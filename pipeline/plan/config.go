package plan

import (
	"errors"
	"fmt"
)

// Config describes which reads a storage is fast at.
type Config struct {
	// MergeGapBytes is the largest gap of unwanted bytes that is read and discarded to save a
	// request. 0 merges only adjacent ranges.
	MergeGapBytes int64
	// MaxReadBytes is the maximum size of a read.
	MaxReadBytes int64
	// AlignBytes is the alignment at which a large range is cut; it must divide MaxReadBytes. 1
	// cuts anywhere. All other ends of reads follow the ranges.
	AlignBytes int64
	// MaxVectors bounds the number of vectors of a read, including gaps: a read ends before it has
	// more. 0 means no bound. With one buffer per read no bound is needed; readv takes at most
	// 1024. Only overlapping ranges can exceed it.
	MaxVectors int
}

// DefaultConfig returns the configuration for local solid state disks and the page cache. Measured
// there, a pread of 4 KiB takes 0.8 µs and large ones reach 17 GiB/s. So a request costs as much as
// about 10 KiB more in another read. Throughput stops growing near 1 MiB. A page is 4 KiB. Vectors
// are not bounded: callers that use them set the bound.
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
