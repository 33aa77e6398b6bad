// Package uringbench compares package uring with fio on the same work: reads of one file, of one
// size, at one depth. lsiofs bench prints the results.
//
//	Job ──Run──► engine ─┐
//	 └────Fio──► fio ────┴──► Result ──Compare: alternating rounds──► medians, ratio
//
// Earlier work affects a disk, the host of a virtual machine and the processor's clock. So warm the
// file before each job, alternate the jobs that are compared, and look at medians, as Compare does.
// This runs the promised rows and some more:
//
//	go test -run - -bench Row -benchtime 1x ./uring/uringbench
package uringbench

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// Job is what to read.
type Job struct {
	Path        string `json:"path"`         // a regular file, not sparse: Make makes one
	RegionBytes int64  `json:"region_bytes"` // the file's first bytes, 0 for all; only whole blocks are read
	BlockBytes  int    `json:"block_bytes"`  // size of a read; reads begin at multiples of it,
	ShiftBytes  int64  `json:"shift_bytes"`  // plus this
	Depth       int    `json:"depth"`        // reads at a time
	Direct      bool   `json:"direct"`       // bypass the page cache; otherwise Warm has filled it
	Random      bool   `json:"random"`       // blocks in uniformly random order, with repetitions; otherwise sequential
	// Inline reads cached blocks with ReadNow on the caller's goroutine, one after the other; Depth
	// is ignored.
	Inline bool `json:"inline"`

	Mode uring.Mode `json:"mode"` // selects the engine

	// The job ends when Duration has passed or Bytes are read, whichever comes first; one of them
	// must be set. Bytes is rounded up to whole blocks.
	Duration time.Duration `json:"duration"`
	Bytes    int64         `json:"bytes"`
}

// Result is what a job has read and what that cost.
type Result struct {
	Bytes      int64   `json:"bytes"`
	Reads      int64   `json:"reads"`
	Seconds    float64 `json:"seconds"`     // from the start of the first read to the end of the last
	CPUSeconds float64 `json:"cpu_seconds"` // of all threads, in user space and in the kernel
	// Status is the engine's at the end; the zero Status if fio has read.
	Status uring.Status `json:"status"`
}

// BytesPerSecond is the job's throughput.
func (r Result) BytesPerSecond() float64 { return float64(r.Bytes) / r.Seconds }

// CPUSecondsPerGiB is the CPU time per GiB.
func (r Result) CPUSecondsPerGiB() float64 { return r.CPUSeconds / float64(r.Bytes) * (1 << 30) }

// ErrNotDirect is returned for direct jobs if the file can't be read with O_DIRECT.
var ErrNotDirect = errors.New("the file can't be read directly (O_DIRECT)")

// maxDepth and maxBlockBytes bound a job, together with maxJobMemory.
const (
	maxDepth      = 4096
	maxBlockBytes = 64 << 20
	maxJobMemory  = 1 << 30
)

func (j Job) check() error {
	switch {
	case j.BlockBytes <= 0 || j.BlockBytes > maxBlockBytes:
		return fmt.Errorf("block of %d bytes: must be 1 to %d", j.BlockBytes, maxBlockBytes)
	case j.Depth <= 0 || j.Depth > maxDepth:
		return fmt.Errorf("depth %d: must be 1 to %d", j.Depth, maxDepth)
	case j.Depth*j.BlockBytes > maxJobMemory:
		return fmt.Errorf("depth %d with blocks of %d bytes: must be %d bytes together at most", j.Depth, j.BlockBytes, maxJobMemory)
	case j.ShiftBytes < 0 || j.ShiftBytes > maxBlockBytes:
		return fmt.Errorf("shift by %d bytes: must be 0 to %d", j.ShiftBytes, maxBlockBytes)
	case j.Duration <= 0 && j.Bytes <= 0:
		return errors.New("a job needs a duration or a number of bytes")
	case j.Inline && j.Direct:
		return errors.New("what is read inline comes from the page cache, and so not directly")
	}
	return nil
}

// open opens the job's file and returns how many blocks there are to read.
func (j Job) open() (f *uring.File, numBlocks int64, err error) {
	if err := j.check(); err != nil {
		return nil, 0, err
	}
	fd, err := unix.Open(j.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: j.Path, Err: err}
	}
	policy := uring.DirectNever
	if j.Direct {
		policy = uring.DirectAlways
	}
	f = uring.NewFile(fd, policy)
	region, err := j.region(fd)
	region -= j.ShiftBytes
	if err == nil && region < int64(j.BlockBytes) {
		err = fmt.Errorf("%s: its %d bytes hold no block of %d", j.Path, region, j.BlockBytes)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, region / int64(j.BlockBytes), nil
}

// region is how much of a file the job reads.
func (j Job) region(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: j.Path, Err: err}
	}
	switch {
	case j.RegionBytes == 0:
		return st.Size, nil
	case j.RegionBytes < 0 || j.RegionBytes > st.Size:
		return 0, fmt.Errorf("%s: a region of %d bytes is not in a file of %d", j.Path, j.RegionBytes, st.Size)
	}
	return j.RegionBytes, nil
}
