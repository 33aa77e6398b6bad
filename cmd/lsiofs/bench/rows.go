package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
)

// The rows' names in reports, in promises, and to each other.
const (
	rowPreadSequentialHot  = "pread-sequential-hot"
	rowPreadRandomHot      = "pread-random-hot"
	rowPreadSequentialCold = "pread-sequential-cold"
	rowPreadRandomCold     = "pread-random-cold"
	rowDecode              = "decode"
	rowFetch               = "fetch"
	rowCeiling             = "ceiling-" // and the number of readers
	rowMount               = "mount-"   // likewise
	rowMountSmall          = "mount-small"
	rowCat                 = "cat"
	rowMountFirst          = "mount-first"
	rowMountWhole          = "mount-whole"
	rowFioCold             = "fio-cold"
	rowEngineCold          = "engine-cold"
	rowMountCold           = "mount-cold"
	rowIndexPass           = "index-pass"
	rowResume              = "resume"
)

// rowList collects rows, leaving out those that nobody wants.
type rowList struct {
	only []string // ids; empty: all
	rows []*row
}

func (l *rowList) add(r row) {
	if len(l.only) == 0 || slices.Contains(l.only, r.id) {
		l.rows = append(l.rows, &r)
	}
}

// rows are what is measured of the dataset, in the order of a round: what is hot
// first, as what is cold empties the page cache.
func (s *session) rows() []*row {
	l := &rowList{only: s.config.Rows}
	counts := []int{1, 2, maxReaders}
	for _, n := range counts {
		l.add(row{id: rowCeiling + fmt.Sprint(n), name: "FUSE ceiling, " + readersText(n), noRecords: true, measure: func(ctx context.Context) (reading, error) {
			return s.measureCeiling(ctx, n)
		}})
	}
	fetchLimit := rowPreadRandomHot
	if s.scope.compressed {
		fetchLimit = rowDecode
		l.add(row{id: rowDecode, name: s.decoderText(), measure: s.measureDecode})
	} else {
		l.add(row{id: rowPreadSequentialHot, name: "pread 1 MiB, file order, hot", measure: s.preads(true, false)})
		l.add(row{id: rowPreadRandomHot, name: "pread a record, the epoch's order, hot", measure: s.preads(false, false)})
	}
	l.add(row{id: rowFetch, name: "fetch, in process", against: fetchLimit, measure: s.measureFetch})
	for _, n := range counts {
		l.add(row{id: rowMount + fmt.Sprint(n), name: "mount, " + readersText(n), against: rowCeiling + fmt.Sprint(n), measure: func(ctx context.Context) (reading, error) {
			return s.measureMount(ctx, n)
		}})
	}
	if !s.scope.compressed {
		l.add(row{id: rowMountSmall, name: "mount, --memory half the data, 1 reader", against: rowCeiling + "1", measure: s.measureSmall})
	}
	if s.scope.compressed {
		// Where whole shards are decoded before the first byte, only the whole counts.
		l.add(row{id: rowCat, name: "cat | reader, from start to end", measure: s.measureCat})
		l.add(row{id: rowMountWhole, name: "mount, from start to the first epoch's end", against: rowDecode, measure: s.measureWhole})
		l.add(row{id: rowMountFirst, name: "the same", against: rowCat, measure: func(context.Context) (reading, error) { return s.lastWhole, nil }})
	} else {
		l.add(row{id: rowCat, name: "cat | reader, first epoch of a process", measure: s.measureCat})
		l.add(row{id: rowMountFirst, name: "mount, first epoch of a process", against: rowCat, measure: s.measureFirst})
		l.add(row{id: rowPreadSequentialCold, name: "pread 1 MiB, file order, O_DIRECT", measure: s.preads(true, true)})
		l.add(row{id: rowPreadRandomCold, name: "pread a record, the epoch's order, O_DIRECT", measure: s.preads(false, true)})
		l.add(row{id: rowFioCold, name: "fio io_uring 256 KiB random QD 32, O_DIRECT", noRecords: true, measure: s.measureFio})
		l.add(row{id: rowEngineCold, name: "engine 256 KiB random QD 32, O_DIRECT", noRecords: true, against: rowFioCold, measure: s.measureEngine})
		l.add(row{id: rowMountCold, name: "mount, cold, --direct on, 1 reader", against: rowFioCold, measure: s.measureCold})
	}
	l.add(row{id: rowIndexPass, name: "index pass, hot", unit: "records/s a core", measure: s.measureIndex})
	l.add(row{id: rowResume, name: "mount --resume in the middle, to the first bytes", unit: "ms", measure: s.measureResume})
	return l.rows
}

func readersText(n int) string {
	if n == 1 {
		return "1 reader"
	}
	return fmt.Sprintf("%d readers", n)
}

// warm fills the page cache with what hot rows read, in large reads.
func (s *session) warm(ctx context.Context) error {
	s.cooled = false
	extents := wholeFiles(s.scope.shardBytes)
	if !s.scope.whole {
		extents = inFileOrder(s.scope.extents, readBytes)
	}
	return readAll(ctx, s.scope.shards, extents, false)
}

// preads measures a plain loop over what the epoch reads.
func (s *session) preads(sequential, direct bool) func(context.Context) (reading, error) {
	return func(ctx context.Context) (reading, error) {
		extents := s.scope.extents
		if sequential {
			extents = inFileOrder(extents, readBytes)
		}
		p, err := newPreads(s.scope.shards, direct, largest(extents))
		if err != nil {
			return reading{}, err
		}
		defer p.close()
		if direct {
			if err := s.cool(ctx); err != nil {
				return reading{}, err
			}
		}
		return p.run(ctx, extents, s.slot)
	}
}

// cool empties the page cache of the shards, and has what lies below it (a
// disk's cache, a host's) as full as it gets, for all rows alike.
func (s *session) cool(ctx context.Context) error {
	if err := s.scope.empty(ctx, s.written); err != nil {
		return err
	}
	s.written = true
	if s.cooled {
		return nil
	}
	s.cooled = true
	extents := wholeFiles(s.scope.shardBytes)
	if !s.scope.whole {
		extents = inFileOrder(s.scope.extents, readBytes)
	}
	return readAll(ctx, s.scope.shards, extents, true)
}

func (s *session) measureCeiling(ctx context.Context, readers int) (reading, error) {
	v, err := s.ceilingMount(ctx)
	if err != nil {
		return reading{}, err
	}
	jobs := make([]readJob, readers)
	for w := range jobs {
		jobs[w] = readJob{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-%d-of-%d.bin", v.point, w, readers)}, StopAfter: s.slot}
	}
	return s.readMount(ctx, v, jobs)
}

func (s *session) measureMount(ctx context.Context, readers int) (reading, error) {
	v, err := s.hotMount(ctx)
	if err != nil {
		return reading{}, err
	}
	if s.warming && readers == 1 {
		// A whole epoch: what servers keep, and the memory for it, is there then.
		j := s.firstEpoch(v.point)
		j.StopAfter = 0
		if _, err := s.readMount(ctx, v, []readJob{j}); err != nil {
			return reading{}, err
		}
	}
	return s.readMount(ctx, v, s.jobsOf(v.point, s.scope.extension, readers, s.slot))
}

// measureSmall reads from a mount that can't keep the data.
func (s *session) measureSmall(ctx context.Context) (reading, error) {
	if s.small == nil {
		m, err := s.startMount(ctx, "--workers", "1", fmt.Sprintf("--memory=%d", max(s.scope.bytes/2, leastMemory)))
		if err != nil {
			return reading{}, err
		}
		s.small, s.servers = m, append(s.servers, m)
	}
	return s.readMount(ctx, s.small, s.jobsOf(s.small.point, s.scope.extension, 1, s.slot))
}

// leastMemory is a budget that any spec permits.
const leastMemory = 64 << 20

// measureFirst has a new process give its first epoch, in which all has to be
// read, and memory to be had.
func (s *session) measureFirst(ctx context.Context) (reading, error) {
	return s.measureFresh(ctx, "--workers", "1")
}

// measureCold is measureFirst with nothing of the shards in the page cache.
func (s *session) measureCold(ctx context.Context) (reading, error) {
	if err := s.cool(ctx); err != nil {
		return reading{}, err
	}
	return s.measureFresh(ctx, "--workers", "1", "--direct", "on")
}

func (s *session) measureFresh(ctx context.Context, args ...string) (r reading, err error) {
	if err := touchMemory(s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	v, err := s.startMount(ctx, args...)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	return s.readMount(ctx, v, []readJob{s.firstEpoch(v.point)})
}

// newProcessBytes is about how much memory a process takes for a first epoch.
func (s *session) newProcessBytes() int64 {
	return min(s.scope.bytes*5/4, s.config.Spec.MemoryBytes) + leastMemory
}

// firstEpoch is the job of a reader of epoch 0, to its end or as far as rows go.
func (s *session) firstEpoch(point string) readJob {
	j := readJob{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-0-of-1%s", point, s.scope.extension)}, StopAfter: s.epochTime()}
	if !s.scope.whole {
		j.PathBytes = s.scope.bytes
	}
	return j
}

// epochTime bounds the reading of a first epoch. Compressed shards are read to
// their ends, others too unless that would take long: what a new process reads
// ahead weighs little then.
func (s *session) epochTime() time.Duration {
	if s.scope.compressed {
		return 0
	}
	return max(2*s.slot, 3*time.Second)
}

// measureFetch reads streams in this process: all that a mount does but FUSE.
func (s *session) measureFetch(ctx context.Context) (reading, error) {
	r := reading{counted: true, mallocs: -1}
	var before, after runtime.MemStats
	deal := spec.Deal{Workers: 1, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	until := s.slot
	if s.warming {
		until = time.Hour // a whole epoch
	}
	for i := 0; i < epochs && r.elapsed < until && (i == 0 || !s.warming); i++ {
		epoch := uint64(0)
		if s.scope.whole {
			epoch = s.epoch
			s.epoch++
		}
		set, err := s.dataset.Set(ctx, epoch, nil, deal)
		if err != nil {
			return r, err
		}
		if _, err := set.SizeBytes(ctx, 0, stream.Data); err != nil {
			return r, err
		}
		h := set.Open(0, stream.Data)
		status := s.dataset.Status().Engine
		runtime.ReadMemStats(&before)
		cpu, began := ownCPU(), monotonic()
		n, err := readStream(ctx, h, s.scope.bytes, began+until-r.elapsed)
		r.elapsed, r.cpu, r.bytes = r.elapsed+monotonic()-began, r.cpu+ownCPU()-cpu, r.bytes+n
		runtime.ReadMemStats(&after)
		h.Close()
		if err != nil {
			return r, err
		}
		now := s.dataset.Status().Engine
		r.reads, r.readBytes = r.reads+now.Reads-status.Reads, r.readBytes+now.ReadBytes-status.ReadBytes
		r.mallocs = float64(after.Mallocs-before.Mallocs) / (float64(n) / s.scope.recordBytes)
	}
	return r, nil
}

// readStream reads up to most bytes until a time.
func readStream(ctx context.Context, h *stream.Handle, most int64, until time.Duration) (int64, error) {
	var reply stream.Reply
	for off := int64(0); off < most; {
		if err := h.ReadAt(ctx, &reply, off, stream.MaxReadBytes); err != nil {
			return off, err
		}
		n := reply.Len()
		reply.Release()
		off += int64(n)
		if n == 0 || monotonic() >= until {
			return off, nil
		}
	}
	return most, nil
}

// measureCat has `lsiofs cat` write the first epoch to a pipe that a reader
// reads from, as it reads from a mount.
func (s *session) measureCat(ctx context.Context) (r reading, err error) {
	if err := touchMemory(s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return reading{}, err
	}
	defer from.Close()
	widenPipe(to)
	reader, err := startReader(s.program.Self, from)
	if err != nil {
		return reading{}, errors.Join(err, to.Close())
	}
	defer reader.kill()
	began := monotonic()
	cat, err := startCat(s.program.Self, s.catArgs(), to, s.log)
	if err = errors.Join(err, to.Close()); err != nil {
		return reading{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cat.Process.Kill() })
	defer stop()
	j := readJob{Paths: []string{"/dev/fd/3"}, StopAfter: s.epochTime()}
	if !s.scope.whole {
		j.PathBytes = s.scope.bytes
	}
	if err := reader.start(j); err != nil {
		return reading{}, err
	}
	_ = from.Close() // or cat would not see that its reader is gone
	done, err := reader.finish()
	if err != nil {
		_ = cat.Process.Kill()
	}
	reader.kill()
	werr := cat.Wait()
	if err != nil || ctx.Err() != nil {
		return reading{}, errors.Join(ctx.Err(), err)
	}
	if werr != nil && done.Bytes == s.scope.streamBytes { // else its reader went away
		return reading{}, fmt.Errorf("lsiofs cat: %w", werr)
	}
	r = joined([]readDone{done}, !s.scope.compressed)
	if s.scope.compressed {
		r.elapsed = done.Ended - began
	}
	r.cpu += cat.ProcessState.UserTime() + cat.ProcessState.SystemTime()
	r.mallocs = -1
	return r, nil
}

// catArgs names the first epoch of one worker, whatever the flags say.
func (s *session) catArgs() []string {
	args := append([]string{s.config.Spec.Dataset}, s.config.Flags...)
	return append(args, "--workers", "1", "--worker", "0/1", "--epoch", "0")
}

// coldBlock and coldDepth are what large random reads are at their best with.
const (
	coldBlock = 256 << 10
	coldDepth = 32
)

func (s *session) coldJob() (uringbench.Job, error) {
	best := 0
	for i, size := range s.scope.shardBytes {
		if size > s.scope.shardBytes[best] {
			best = i
		}
	}
	j := uringbench.Job{
		Path: s.scope.shards[best], BlockBytes: coldBlock, Depth: coldDepth, Direct: true, Random: true, Duration: s.slot, Mode: uring.ModeAuto,
	}
	if size := s.scope.shardBytes[best]; size < 64*coldBlock {
		return j, notMeasured("the largest shard has %d MiB, too little for random reads", size>>20)
	}
	return j, s.scope.empty(context.Background(), s.written)
}

func (s *session) measureFio(ctx context.Context) (reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return reading{}, err
	}
	r, err := uringbench.Fio(ctx, j, uringbench.FioUring)
	if errors.Is(err, uringbench.ErrNoFio) {
		return reading{}, notMeasured("%w", err)
	}
	return fromJob(r), err
}

func (s *session) measureEngine(ctx context.Context) (reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return reading{}, err
	}
	r, err := uringbench.Run(ctx, j)
	if errors.Is(err, uringbench.ErrNotDirect) {
		return reading{}, notMeasured("%w", err)
	}
	return fromJob(r), err
}

func fromJob(r uringbench.Result) reading {
	return reading{bytes: r.Bytes, elapsed: time.Duration(r.Seconds * 1e9), cpu: time.Duration(r.CPUSeconds * 1e9), mallocs: -1}
}
