package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
)

// preads is a plain loop of pread(2) over extents: what any program could do that knew the order.
// It is not safe for concurrent use.
type preads struct {
	shards []string
	direct bool // bypass the page cache
	buf    []byte
	filled int
	files  map[int32]int // descriptors by shard
}

// maxOpenShards bounds the descriptors of a loop.
const maxOpenShards = 256

// directBytes is the alignment of direct reads. A page suits every file system.
const directBytes = 4096

func newPreads(shards []string, direct bool, largest int) (*preads, error) {
	// Room for an aligned read around the largest range. It is outside the Go heap because direct
	// reads need aligned memory.
	size := max(readBytes, largest+2*directBytes)
	size = (size + directBytes - 1) &^ (directBytes - 1)
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("memory for reading: %w", err)
	}
	return &preads{shards: shards, direct: direct, buf: buf, files: map[int32]int{}}, nil
}

func (p *preads) close() {
	p.closeFiles()
	_ = unix.Munmap(p.buf) // it is mapped
}

func (p *preads) closeFiles() {
	for i, fd := range p.files {
		_ = unix.Close(fd) // it is open for reading only
		delete(p.files, i)
	}
}

// open returns a shard's descriptor.
func (p *preads) open(shard int32) (int, error) {
	if fd, ok := p.files[shard]; ok {
		return fd, nil
	}
	if len(p.files) >= maxOpenShards {
		p.closeFiles()
	}
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	if p.direct {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(p.shards[shard], flags, 0)
	if p.direct && err == unix.EINVAL {
		return 0, NotMeasured("%s can't be opened with O_DIRECT", p.shards[shard])
	}
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", p.shards[shard], err)
	}
	p.files[shard] = fd
	return fd, nil
}

// read reads an extent. It returns the number of bytes that were wanted and that were read. Hot
// records follow each other in the buffer, as in a reply.
func (p *preads) read(x extent) (wanted, got int, err error) {
	fd, err := p.open(x.shard)
	if err != nil {
		return 0, 0, err
	}
	offset, dst := x.offset, []byte(nil)
	if p.direct {
		offset &^= directBytes - 1
		n := (int(x.offset-offset) + int(x.size) + directBytes - 1) &^ (directBytes - 1)
		dst = p.buf[:n]
	} else {
		if p.filled+int(x.size) > len(p.buf) {
			p.filled = 0
		}
		dst = p.buf[p.filled : p.filled+int(x.size)]
		p.filled += int(x.size)
	}
	for need := int(x.offset-offset) + int(x.size); got < need; {
		n, err := unix.Pread(fd, dst[got:], offset+int64(got))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EINVAL && p.direct:
			return 0, 0, NotMeasured("%s can't be read with O_DIRECT", p.shards[x.shard])
		case err != nil:
			return 0, 0, fmt.Errorf("read %s: %w", p.shards[x.shard], err)
		case n == 0:
			return 0, 0, fmt.Errorf("read %s: it ends before byte %d", p.shards[x.shard], offset+int64(need))
		}
		got += n
	}
	return int(x.size), got, nil
}

// slotReads is the number of reads between two checks of the clock.
const slotReads = 64

// run reads extents repeatedly until the slot ends, or once if slot is 0.
func (p *preads) run(ctx context.Context, extents []extent, slot time.Duration) (Reading, error) {
	r := Reading{Counted: true, Mallocs: -1}
	cpu, began := OwnCPU(), Monotonic()
	for done := false; !done; {
		for i, x := range extents {
			if i%slotReads == 0 || x.size > readBytes/4 {
				if err := ctx.Err(); err != nil {
					return r, err
				}
				if done = slot > 0 && Monotonic()-began >= slot; done {
					break
				}
			}
			n, got, err := p.read(x)
			if err != nil {
				return r, err
			}
			r.Bytes += int64(n)
			r.ReadBytes += uint64(got)
			r.Reads++
		}
		done = done || slot == 0
	}
	r.Elapsed, r.CPU = Monotonic()-began, OwnCPU()-cpu
	return r, nil
}

// inFileOrder returns the same ranges in file order, with adjacent ones merged into ranges of up to
// most bytes.
func inFileOrder(extents []extent, most int32) []extent {
	sorted := slices.Clone(extents)
	sort.Slice(sorted, func(i, j int) bool {
		a, b := &sorted[i], &sorted[j]
		return a.shard < b.shard || a.shard == b.shard && a.offset < b.offset
	})
	var merged []extent
	for _, x := range sorted {
		if n := len(merged); n > 0 {
			last := &merged[n-1]
			if last.shard == x.shard && last.offset+int64(last.size) == x.offset && int64(last.size)+int64(x.size) <= int64(most) {
				last.size += x.size
				continue
			}
		}
		merged = append(merged, x)
	}
	return merged
}

// wholeFiles returns extents that cover whole files.
func wholeFiles(sizes []int64) []extent {
	var all []extent
	for shard, size := range sizes {
		for at := int64(0); at < size; at += readBytes {
			all = append(all, extent{at, int32(shard), int32(min(readBytes, size-at))})
		}
	}
	return all
}

// readAll reads extents once, with several threads, to fill a cache.
func readAll(ctx context.Context, shards []string, extents []extent, direct bool) error {
	const threads = 4
	errs := make([]error, threads)
	var wait sync.WaitGroup
	for t := range threads {
		wait.Go(func() {
			p, err := newPreads(shards, direct, largest(extents))
			if err == nil {
				defer p.close()
				_, err = p.run(ctx, extents[len(extents)*t/threads:len(extents)*(t+1)/threads], 0)
			}
			errs[t] = err
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func largest(extents []extent) int {
	n := int32(0)
	for _, x := range extents {
		n = max(n, x.size)
	}
	return int(n)
}

// Sizes and depths with which large reads are fastest.
const (
	coldBlock       = 256 << 10
	ColdDepth       = 32
	sequentialBlock = 1 << 20
	sequentialDepth = 16
)

// coldJob returns direct reads of the largest shard. It empties the page cache of the shards.
func (s *Session) coldJob() (uringbench.Job, error) {
	best := 0
	for i, size := range s.Scope.shardBytes {
		if size > s.Scope.shardBytes[best] {
			best = i
		}
	}
	j := uringbench.Job{
		Path: s.Scope.Shards[best], BlockBytes: coldBlock, Depth: ColdDepth, Direct: true, Random: true, Duration: s.Slot, Mode: uring.ModeAuto,
	}
	if size := s.Scope.shardBytes[best]; size < 64*coldBlock {
		return j, NotMeasured("the largest shard has %d MiB, too little for random reads", size>>20)
	}
	return j, s.Scope.empty(context.Background(), s.written)
}

func (s *Session) measureFio(ctx context.Context) (Reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return Reading{}, err
	}
	r, err := uringbench.Fio(ctx, j, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return Reading{}, NotMeasured("%w", err) // it is missing, or may not use io_uring
	}
	return FromJob(r), err
}

func (s *Session) measureFioSequential(ctx context.Context) (Reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return Reading{}, err
	}
	j.BlockBytes, j.Depth, j.Random = sequentialBlock, sequentialDepth, false
	r, err := uringbench.Fio(ctx, j, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return Reading{}, NotMeasured("%w", err)
	}
	return FromJob(r), err
}

// measureVerify reads all shards from start to end, past the page cache.
func (s *Session) measureVerify(ctx context.Context) (Reading, error) {
	if err := s.cool(ctx); err != nil {
		return Reading{}, err
	}
	began, used := Monotonic(), OwnCPU()
	v, err := s.dataset.VerifyShards(ctx, nil)
	r := Reading{Bytes: v.Bytes, Elapsed: Monotonic() - began, CPU: OwnCPU() - used, Mallocs: -1}
	if err == nil && v.Total > 0 {
		err = fmt.Errorf("%s: %s: lsiofs verify lists all of %d places", v.Findings[0].Shard, v.Findings[0].Reason, v.Total)
	}
	return r, err
}

func (s *Session) measureEngine(ctx context.Context) (Reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return Reading{}, err
	}
	r, err := uringbench.Run(ctx, j)
	if errors.Is(err, uringbench.ErrNotDirect) {
		return Reading{}, NotMeasured("%w", err)
	}
	return FromJob(r), err
}

// FromJob returns the reading of a job of the engine or of fio.
func FromJob(r uringbench.Result) Reading {
	return Reading{Bytes: r.Bytes, Elapsed: time.Duration(r.Seconds * 1e9), CPU: time.Duration(r.CPUSeconds * 1e9), Mallocs: -1}
}
