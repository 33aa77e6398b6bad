package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The rows' IDs, used in reports, in promises, and for comparisons.
const (
	rowPreadSequentialHot  = "pread-sequential-hot"
	rowPreadRandomHot      = "pread-random-hot"
	rowPreadSequentialCold = "pread-sequential-cold"
	rowPreadRandomCold     = "pread-random-cold"
	rowDecode              = "decode"
	rowDecodeOwn           = "decode-own"
	rowFetch               = "fetch"
	rowCeiling             = "ceiling-" // followed by the number of readers
	rowMount               = "mount-"   // followed by the number of readers
	rowMountSmall          = "mount-small"
	rowMixture             = "mixture"
	rowTar                 = "tar"
	rowMountOpened         = "mount-opened"
	rowCat                 = "cat"
	rowMountFirst          = "mount-first"
	rowMountWhole          = "mount-whole"
	rowMountEpoch          = "mount-epoch"
	rowTensorsEpoch        = "tensors-epoch"
	rowTensorsHot          = "tensors-hot"
	rowMountHalf           = "mount-half"
	rowFirstByte           = "first-byte"
	rowJump                = "jump"
	rowPoints              = "points"
	rowFioCold             = "fio-cold"
	rowEngineCold          = "engine-cold"
	rowMountCold           = "mount-cold"
	rowFioSequential       = "fio-sequential"
	rowVerify              = "verify"
	rowIndexPass           = "index-pass"
	rowResume              = "resume"
)

// rowList collects rows and skips those that are not requested.
type rowList struct {
	only []string // ids; empty: all
	rows []*row
}

func (l *rowList) add(r row) {
	if len(l.only) == 0 || slices.Contains(l.only, r.id) {
		l.rows = append(l.rows, &r)
	}
}

// rows returns the dataset's rows in the order of a round: hot ones first, because cold ones empty
// the page cache.
func (s *session) rows() []*row {
	l := &rowList{only: s.config.Rows}
	counts := []int{1, 2, maxReaders}
	for _, n := range counts {
		l.add(row{id: rowCeiling + fmt.Sprint(n), name: "FUSE ceiling, " + readersText(n), noRecords: true, measure: func(ctx context.Context) (reading, error) {
			return s.measureCeiling(ctx, n)
		}})
	}
	fetchLimit := rowPreadRandomHot
	switch {
	case s.scope.files:
		fetchLimit = rowTar
		l.add(row{id: rowTar, name: "tar c of all files, to a pipe", measure: s.measureTar})
	case s.scope.compressed:
		fetchLimit = rowDecode
		l.add(row{id: rowDecode, name: s.decoderText(), measure: s.measureDecode})
		l.add(row{id: rowDecodeOwn, name: "lsiofs' decoders alone, into new memory", against: rowDecode, measure: s.measureDecodeOwn})
	default:
		l.add(row{id: rowPreadSequentialHot, name: "pread 1 MiB, file order, hot", measure: s.preads(true, false)})
		l.add(row{id: rowPreadRandomHot, name: "pread a record, the epoch's order, hot", measure: s.preads(false, false)})
	}
	l.add(row{id: rowFetch, name: "fetch, in process", against: fetchLimit, measure: s.measureFetch})
	for _, n := range counts {
		l.add(row{id: rowMount + fmt.Sprint(n), name: "mount, " + readersText(n), against: rowCeiling + fmt.Sprint(n), measure: func(ctx context.Context) (reading, error) {
			return s.measureMount(ctx, n)
		}})
	}
	s.addMixture(l)
	if !s.scope.compressed {
		l.add(row{id: rowMountSmall, name: "mount, --memory half the data, 1 reader", against: rowCeiling + "1", measure: s.measureSmall})
	}
	if s.scope.files {
		l.add(row{id: rowMountOpened, name: "mount, --read gather, 1 reader", against: rowTar, measure: s.measureOpened})
	}
	if s.scope.compressed {
		// If whole shards are decoded before the first byte, only the total time counts.
		l.add(row{id: rowCat, name: "cat | reader, from start to end", measure: s.measureCat})
		l.add(row{id: rowMountWhole, name: "mount, from start to the first epoch's end", against: rowDecode, measure: s.measureWhole})
		l.add(row{id: rowMountFirst, name: "the same", against: rowCat, measure: func(context.Context) (reading, error) { return s.lastWhole, nil }})
		l.add(row{id: rowMountEpoch, name: "mount, first epoch of a process", against: rowDecode, measure: s.measureFirst})
		s.addPoints(l)
		s.addTensors(l)
	} else {
		l.add(row{id: rowCat, name: "cat | reader, first epoch of a process", measure: s.measureCat})
		l.add(row{id: rowMountFirst, name: "mount, first epoch of a process", against: rowCat, measure: s.measureFirst})
	}
	if !s.scope.compressed && !s.scope.files {
		l.add(row{id: rowPreadSequentialCold, name: "pread 1 MiB, file order, O_DIRECT", measure: s.preads(true, true)})
		l.add(row{id: rowPreadRandomCold, name: "pread a record, the epoch's order, O_DIRECT", measure: s.preads(false, true)})
		l.add(row{id: rowFioCold, name: "fio io_uring 256 KiB random QD 32, O_DIRECT", noRecords: true, measure: s.measureFio})
		l.add(row{id: rowEngineCold, name: "engine 256 KiB random QD 32, O_DIRECT", noRecords: true, against: rowFioCold, measure: s.measureEngine})
		l.add(row{id: rowMountCold, name: "mount, cold, --direct on, 1 reader", against: rowFioCold, measure: s.measureCold})
		l.add(row{id: rowFioSequential, name: "fio io_uring 1 MiB sequential QD 16, O_DIRECT", noRecords: true, measure: s.measureFioSequential})
		l.add(row{id: rowVerify, name: "verify", against: rowFioSequential, measure: s.measureVerify})
	}
	l.add(row{id: rowIndexPass, name: "index pass, hot", unit: "records a CPU second", measure: s.measureIndex})
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
	if s.scope.files {
		return s.warmFiles(ctx)
	}
	extents := wholeFiles(s.scope.shardBytes)
	if !s.scope.whole {
		extents = inFileOrder(s.scope.extents, readBytes)
	}
	return readAll(ctx, s.scope.shards, extents, false)
}

// preads measures a plain loop over the reads of the epoch.
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

// cool empties the page cache of the shards. It also fills the caches below (of a disk or a host)
// as far as possible, so that they are alike for all rows.
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
		// A whole epoch, so that the server has what it keeps, and the memory for it.
		j := s.firstEpoch(v.point)
		j.StopAfter = 0
		if _, err := s.readMount(ctx, v, []readJob{j}); err != nil {
			return reading{}, err
		}
	}
	return s.readMount(ctx, v, s.jobsOf(v.point, s.scope.extension, readers, s.slot))
}

// measureSmall reads from a mount whose memory can't hold the data.
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

// measureFirst reads the first epoch of a new process, in which all data has to be read and all
// memory allocated.
func (s *session) measureFirst(ctx context.Context) (reading, error) {
	return s.measureFresh(ctx, "--workers", "1")
}

// measureCold is measureFirst with none of the shards in the page cache.
func (s *session) measureCold(ctx context.Context) (reading, error) {
	if err := s.cool(ctx); err != nil {
		return reading{}, err
	}
	// The new process may get the memory that the page cache gave up.
	if err := touchMemory(ctx, s.newProcessBytes()+s.scope.bytes); err != nil {
		return reading{}, err
	}
	return s.measureFresh(ctx, "--workers", "1", "--direct", "on")
}

func (s *session) measureFresh(ctx context.Context, args ...string) (r reading, err error) {
	if err := touchMemory(ctx, s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	v, err := s.startMount(ctx, args...)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	return s.readMount(ctx, v, []readJob{s.firstEpoch(v.point)})
}

// newProcessBytes returns the approximate memory that a process takes for a first epoch.
func (s *session) newProcessBytes() int64 {
	return min(2*s.scope.bytes, s.config.Spec.MemoryBytes) + 2*leastMemory
}

// firstEpoch returns the job of reading epoch 0, to its end or as far as rows read.
func (s *session) firstEpoch(point string) readJob {
	j := readJob{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-0-of-1%s", point, s.scope.extension)}, StopAfter: s.epochTime()}
	if !s.scope.whole {
		j.PathBytes = s.scope.bytes
	}
	return j
}

// epochTime bounds the reading of a first epoch. Compressed shards are read to the end, others too
// unless that takes long, so that what a new process reads ahead has little weight.
func (s *session) epochTime() time.Duration {
	if s.scope.compressed {
		return 0
	}
	return max(2*s.slot, 3*time.Second)
}
