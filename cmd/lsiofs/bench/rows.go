package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// The rows' IDs, used in reports, in promises, and for comparisons.
const (
	rowPreadSequentialHot  = "pread-sequential-hot"
	rowPreadRandomHot      = "pread-random-hot"
	rowPreadSequentialCold = "pread-sequential-cold"
	rowPreadRandomCold     = "pread-random-cold"
	RowDecode              = "decode"
	RowDecodeOwn           = "decode-own"
	RowFetch               = "fetch"
	RowCeiling             = "ceiling-" // followed by the number of readers
	RowMount               = "mount-"   // followed by the number of readers
	rowMountSmall          = "mount-small"
	RowMixture             = "mixture"
	RowTar                 = "tar"
	RowMountOpened         = "mount-opened"
	RowCat                 = "cat"
	RowMountFirst          = "mount-first"
	RowMountWhole          = "mount-whole"
	RowMountEpoch          = "mount-epoch"
	RowTensorsEpoch        = "tensors-epoch"
	RowTensorsHot          = "tensors-hot"
	RowMountHalf           = "mount-half"
	RowPlain               = "plain"
	RowKept                = "kept"
	RowFirstByte           = "first-byte"
	RowJump                = "jump"
	RowPoints              = "points"
	RowFioCold             = "fio-cold"
	RowEngineCold          = "engine-cold"
	RowMountCold           = "mount-cold"
	RowFioSequential       = "fio-sequential"
	RowVerify              = "verify"
	RowIndexPass           = "index-pass"
	RowResume              = "resume"
)

// Measurements collects rows and skips those that are not requested.
type Measurements struct {
	Only []string // ids; empty: all
	Rows []*Measurement
}

// Add adds a row, unless it is not requested.
func (l *Measurements) Add(r Measurement) {
	if len(l.Only) == 0 || slices.Contains(l.Only, r.ID) {
		l.Rows = append(l.Rows, &r)
	}
}

// Rows returns the dataset's rows in the order of a round: hot ones first, because cold ones empty
// the page cache.
func (s *Session) Rows() []*Measurement {
	l := &Measurements{Only: s.Config.Rows}
	counts := []int{1, 2, maxReaders}
	for _, n := range counts {
		l.Add(Measurement{ID: RowCeiling + fmt.Sprint(n), Name: "FUSE ceiling, " + readersText(n), NoRecords: true, Measure: func(ctx context.Context) (Reading, error) {
			return s.measureCeiling(ctx, n)
		}})
	}
	fetchLimit, decodeLimit := rowPreadRandomHot, RowDecode
	switch {
	case s.Scope.Files:
		fetchLimit = RowTar
		l.Add(Measurement{ID: RowTar, Name: "tar c of all files, to a pipe", Measure: s.measureTar})
	case s.Scope.Tables: // there is no other program that decodes them to the same bytes
		decodeLimit, fetchLimit = RowDecodeOwn, RowDecodeOwn
		l.Add(Measurement{ID: RowDecodeOwn, Name: "lsiofs' decoders alone, into new memory", Measure: s.measureDecodeOwn})
	case s.Scope.Compressed:
		fetchLimit = RowDecode
		l.Add(Measurement{ID: RowDecode, Name: s.decoderText(), Measure: s.measureDecode})
		l.Add(Measurement{ID: RowDecodeOwn, Name: "lsiofs' decoders alone, into new memory", Against: RowDecode, Measure: s.measureDecodeOwn})
	default:
		l.Add(Measurement{ID: rowPreadSequentialHot, Name: "pread 1 MiB, file order, hot", Measure: s.preads(true, false)})
		l.Add(Measurement{ID: rowPreadRandomHot, Name: "pread a record, the epoch's order, hot", Measure: s.preads(false, false)})
	}
	l.Add(Measurement{ID: RowFetch, Name: "fetch, in process", Against: fetchLimit, Measure: s.measureFetch})
	for _, n := range counts {
		l.Add(Measurement{ID: RowMount + fmt.Sprint(n), Name: "mount, " + readersText(n), Against: RowCeiling + fmt.Sprint(n), Measure: func(ctx context.Context) (Reading, error) {
			return s.measureMount(ctx, n)
		}})
	}
	s.addMixture(l)
	if !s.Scope.Compressed {
		l.Add(Measurement{ID: rowMountSmall, Name: "mount, --memory half the data, 1 reader", Against: RowCeiling + "1", Measure: s.measureSmall})
	}
	if s.Scope.Files {
		l.Add(Measurement{ID: RowMountOpened, Name: "mount, --read gather, 1 reader", Against: RowTar, Measure: s.measureOpened})
	}
	if s.Scope.Compressed {
		// If whole shards are decoded before the first byte, only the total time counts.
		l.Add(Measurement{ID: RowCat, Name: "cat | reader, from start to end", Measure: s.measureCat})
		l.Add(Measurement{ID: RowMountWhole, Name: "mount, from start to the first epoch's end", Against: decodeLimit, Measure: s.measureWhole})
		l.Add(Measurement{ID: RowMountFirst, Name: "the same", Against: RowCat, Measure: func(context.Context) (Reading, error) { return s.lastWhole, nil }})
		l.Add(Measurement{ID: RowMountEpoch, Name: "mount, first epoch of a process", Against: decodeLimit, Measure: s.measureFirst})
		s.addPoints(l, decodeLimit)
		s.addTensors(l)
	} else {
		l.Add(Measurement{ID: RowCat, Name: "cat | reader, first epoch of a process", Measure: s.measureCat})
		l.Add(Measurement{ID: RowMountFirst, Name: "mount, first epoch of a process", Against: RowCat, Measure: s.measureFirst})
	}
	if !s.Scope.Compressed && !s.Scope.Files {
		l.Add(Measurement{ID: rowPreadSequentialCold, Name: "pread 1 MiB, file order, O_DIRECT", Measure: s.preads(true, true)})
		l.Add(Measurement{ID: rowPreadRandomCold, Name: "pread a record, the epoch's order, O_DIRECT", Measure: s.preads(false, true)})
		l.Add(Measurement{ID: RowFioCold, Name: "fio io_uring 256 KiB random QD 32, O_DIRECT", NoRecords: true, Measure: s.measureFio})
		l.Add(Measurement{ID: RowEngineCold, Name: "engine 256 KiB random QD 32, O_DIRECT", NoRecords: true, Against: RowFioCold, Measure: s.measureEngine})
		l.Add(Measurement{ID: RowMountCold, Name: "mount, cold, --direct on, 1 reader", Against: RowFioCold, Measure: s.measureCold})
		l.Add(Measurement{ID: RowFioSequential, Name: "fio io_uring 1 MiB sequential QD 16, O_DIRECT", NoRecords: true, Measure: s.measureFioSequential})
		l.Add(Measurement{ID: RowVerify, Name: "verify", Against: RowFioSequential, Measure: s.measureVerify})
	}
	l.Add(Measurement{ID: RowIndexPass, Name: "index pass, hot", Unit: "records per CPU second", Measure: s.measureIndex})
	l.Add(Measurement{ID: RowResume, Name: "mount --resume in the middle, to the first bytes", Unit: "ms", Measure: s.measureResume})
	return l.Rows
}

func readersText(n int) string {
	if n == 1 {
		return "1 reader"
	}
	return fmt.Sprintf("%d readers", n)
}

// warm fills the page cache with what hot rows read, in large reads.
func (s *Session) warm(ctx context.Context) error {
	s.cooled = false
	if s.Scope.Files {
		return s.warmFiles(ctx)
	}
	extents := wholeFiles(s.Scope.shardBytes)
	if !s.Scope.Whole {
		extents = inFileOrder(s.Scope.extents, readBytes)
	}
	return readAll(ctx, s.Scope.Shards, extents, false)
}

// preads measures a plain loop over the reads of the epoch.
func (s *Session) preads(sequential, direct bool) func(context.Context) (Reading, error) {
	return func(ctx context.Context) (Reading, error) {
		extents := s.Scope.extents
		if sequential {
			extents = inFileOrder(extents, readBytes)
		}
		p, err := newPreads(s.Scope.Shards, direct, largest(extents))
		if err != nil {
			return Reading{}, err
		}
		defer p.close()
		if direct {
			if err := s.cool(ctx); err != nil {
				return Reading{}, err
			}
		}
		return p.run(ctx, extents, s.Slot)
	}
}

// cool empties the page cache of the shards. It also fills the caches below (of a disk or a host)
// as far as possible, so that they are alike for all rows.
func (s *Session) cool(ctx context.Context) error {
	if err := s.Scope.empty(ctx, s.written); err != nil {
		return err
	}
	s.written = true
	if s.cooled {
		return nil
	}
	s.cooled = true
	extents := wholeFiles(s.Scope.shardBytes)
	if !s.Scope.Whole {
		extents = inFileOrder(s.Scope.extents, readBytes)
	}
	return readAll(ctx, s.Scope.Shards, extents, true)
}

func (s *Session) measureCeiling(ctx context.Context, readers int) (Reading, error) {
	v, err := s.ceilingMount(ctx)
	if err != nil {
		return Reading{}, err
	}
	jobs := make([]ReadJob, readers)
	for w := range jobs {
		jobs[w] = ReadJob{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-%d-of-%d.bin", v.Point, w, readers)}, StopAfter: s.Slot}
	}
	return s.ReadMount(ctx, v, jobs)
}

func (s *Session) measureMount(ctx context.Context, readers int) (Reading, error) {
	v, err := s.hotMount(ctx)
	if err != nil {
		return Reading{}, err
	}
	if s.warming && readers == 1 {
		// A whole epoch, so that the server has what it keeps, and the memory for it.
		j := s.firstEpoch(v.Point)
		j.StopAfter = 0
		if _, err := s.ReadMount(ctx, v, []ReadJob{j}); err != nil {
			return Reading{}, err
		}
	}
	return s.ReadMount(ctx, v, s.JobsOf(v.Point, s.Scope.extension, readers, s.Slot))
}

// measureSmall reads from a mount whose memory can't hold the data.
func (s *Session) measureSmall(ctx context.Context) (Reading, error) {
	if s.small == nil {
		m, err := s.startMount(ctx, "--workers", "1", fmt.Sprintf("--memory=%d", max(s.Scope.bytes/2, LeastMemory)))
		if err != nil {
			return Reading{}, err
		}
		s.small, s.Servers = m, append(s.Servers, m)
	}
	return s.ReadMount(ctx, s.small, s.JobsOf(s.small.Point, s.Scope.extension, 1, s.Slot))
}

// LeastMemory is a budget that any spec permits.
const LeastMemory = 64 << 20

// measureFirst reads the first epoch of a new process, in which all data has to be read and all
// memory allocated.
func (s *Session) measureFirst(ctx context.Context) (Reading, error) {
	return s.measureFresh(ctx, "--workers", "1")
}

// measureCold is measureFirst with none of the shards in the page cache.
func (s *Session) measureCold(ctx context.Context) (Reading, error) {
	if err := s.cool(ctx); err != nil {
		return Reading{}, err
	}
	// The new process may get the memory that the page cache gave up.
	if err := TouchMemory(ctx, s.newProcessBytes()+s.Scope.bytes); err != nil {
		return Reading{}, err
	}
	return s.measureFresh(ctx, "--workers", "1", "--direct", "on")
}

func (s *Session) measureFresh(ctx context.Context, args ...string) (r Reading, err error) {
	if err := TouchMemory(ctx, s.newProcessBytes()); err != nil {
		return Reading{}, err
	}
	v, err := s.startMount(ctx, args...)
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	return s.ReadMount(ctx, v, []ReadJob{s.firstEpoch(v.Point)})
}

// newProcessBytes returns the approximate memory that a process takes for a first epoch.
func (s *Session) newProcessBytes() int64 {
	return min(2*s.Scope.bytes, s.Config.Spec.MemoryBytes) + 2*LeastMemory
}

// firstEpoch returns the job of reading epoch 0, to its end or as far as rows read.
func (s *Session) firstEpoch(point string) ReadJob {
	j := ReadJob{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-0-of-1%s", point, s.Scope.extension)}, StopAfter: s.epochTime()}
	if !s.Scope.Whole {
		j.PathBytes = s.Scope.bytes
	}
	return j
}

// epochTime bounds the reading of a first epoch. Compressed shards are read to the end, others too
// unless that takes long, so that what a new process reads ahead has little weight.
func (s *Session) epochTime() time.Duration {
	if s.Scope.Compressed {
		return 0
	}
	return max(2*s.Slot, 3*time.Second)
}

// halvesDir contains the sources of the mixture: two directories of links to the shards, with their
// indexes next to them.
const halvesDir = "halves"

// addMixture adds the row for a mixture of two sources, which together have all records of the
// dataset, in their shares. The difference in speed is the cost of mixing.
func (s *Session) addMixture(l *Measurements) {
	if s.Scope.Compressed || s.Scope.Files {
		return
	}
	l.Add(Measurement{ID: RowMixture, Name: "mount of both halves mixed, 1 reader", Against: RowMount + "1", Measure: s.measureMixture})
}

// measureMixture is measureMount of the mixture.
func (s *Session) measureMixture(ctx context.Context) (Reading, error) {
	if s.mixture == nil {
		if len(s.Scope.Shards) < 2 || !s.Scope.Whole {
			return Reading{}, NotMeasured("a mixture needs at least two shards, which must all fit into the page cache")
		}
		if sp := s.Config.Spec; !sp.Order.Split.Part.Whole() || sp.Order.Sample.Of > 1 {
			return Reading{}, NotMeasured("mixtures are measured without --split and --sample")
		}
		records := s.halves()
		length := uint64(0)
		if shares, err := order.NewShares(s.Config.Spec.Order.Seed, records); err == nil { // fails if a half has no records
			length, _ = shares.First(records)
		}
		if length == 0 {
			return Reading{}, NotMeasured("a mixture needs more than %d records", s.dataset.Records())
		}
		if err := s.mountMixture(ctx, records); err != nil {
			return Reading{}, err
		}
	}
	slot := s.Slot
	if s.warming {
		slot = 0 // a whole epoch, as in measureMount
	}
	return s.ReadMount(ctx, s.mixture, s.JobsOf(s.mixture.Point, s.Scope.extension, 1, slot))
}

// halves returns the numbers of records in the first and second half of the shards.
func (s *Session) halves() []uint64 {
	records := make([]uint64, 2)
	for n := range s.Scope.Shards {
		i := 0
		if n >= len(s.Scope.Shards)/2 {
			i = 1
		}
		records[i] += s.dataset.Catalog().Shard(n).Records
	}
	return records
}

func (s *Session) mountMixture(ctx context.Context, records []uint64) error {
	point, err := s.NewPoint()
	if err != nil {
		return err
	}
	args := []string{point, "--workers", "1"}
	middle := len(s.Scope.Shards) / 2
	for i, half := range [][2]int{{0, middle}, {middle, len(s.Scope.Shards)}} {
		dir := filepath.Join(s.Dir, halvesDir, fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(dir, ".lsiofs"), 0o700); err != nil {
			return err
		}
		for n := half[0]; n < half[1]; n++ {
			path := s.Scope.Shards[n]
			if err := os.Symlink(path, filepath.Join(dir, fmt.Sprintf("%06d-%s", n, filepath.Base(path)))); err != nil {
				return err
			}
		}
		args = append(args, "--mix", fmt.Sprintf("half%d=%d:%s", i, records[i], dir))
	}
	s.mixture, err = s.Program.MountOn(ctx, point, s.Log, append(args, slices.Clone(s.Config.Flags)...))
	if err != nil {
		return err
	}
	s.Servers = append(s.Servers, s.mixture)
	return nil
}
