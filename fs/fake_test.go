package fs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/uring"
)

// fakeDataset has records in memory, in the real order, for faults and schedules that files can't
// produce. Record r is its number and some bytes that depend on it.
type fakeDataset struct {
	spec    spec.Spec
	records uint64
	cubes   []string // that records are crops of; nil for none

	meter meter.Meter

	mu sync.Mutex
	// fault, if set, is called before a data read is answered.
	fault func(ctx context.Context, w uint64, off int64) error
	open  int // number of handles
	// How many files of coordinates were read, and whether they are gone.
	coordinatesRead int
	lostCoordinates bool
}

func newFakeDataset(workers uint64) *fakeDataset {
	s := spec.Default()
	s.Dataset = "/nowhere/at/all"
	s.Order.SizeRecords, s.Order.Lanes = 64, 4
	s.Deal.Workers = workers
	return &fakeDataset{spec: s, records: 1000}
}

func (d *fakeDataset) Spec() spec.Spec                                       { return d.spec }
func (d *fakeDataset) Fingerprint() string                                   { return fmt.Sprintf("%064x", 0xfa4e) }
func (d *fakeDataset) Records() uint64                                       { return d.records }
func (d *fakeDataset) StreamExtension() string                               { return ".rec" }
func (d *fakeDataset) EpochRecords(context.Context, uint64) (uint64, error)  { return d.records, nil }
func (d *fakeDataset) DescribeEpoch(context.Context, uint64) ([]byte, error) { return d.Describe() }
func (d *fakeDataset) Describe() ([]byte, error) {
	return fmt.Appendf(nil, "{\"records\": %d}\n", d.records), nil
}

func (d *fakeDataset) Set(context.Context, uint64, []order.Done, spec.Assignment) (*stream.Set, error) {
	panic("the tests open sets through newMount")
}

func (d *fakeDataset) Crops() bool     { return d.cubes != nil }
func (d *fakeDataset) Cubes() []string { return d.cubes }

// Coordinates returns those of two dimensions. Those of time differ from cube to cube.
func (d *fakeDataset) Coordinates(_ context.Context, cube int) ([]pipeline.Coordinate, error) {
	return []pipeline.Coordinate{{Dim: "time", SizeBytes: int64(len(d.coordinate(cube, "time")))}, {Dim: "x", SizeBytes: int64(len(d.coordinate(cube, "x")))}}, nil
}

func (d *fakeDataset) Coordinate(_ context.Context, cube int, dim string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.coordinatesRead++
	if d.lostCoordinates {
		return nil, storage.ErrChanged
	}
	return d.coordinate(cube, dim), nil
}

func (d *fakeDataset) readCoordinates() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.coordinatesRead
}

func (d *fakeDataset) loseCoordinates() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lostCoordinates = true
}

func (d *fakeDataset) coordinate(cube int, dim string) []byte {
	if dim == "time" {
		return bytes.Repeat([]byte(d.cubes[cube]), 1000)
	}
	return []byte(dim)
}

func (d *fakeDataset) Meter() *meter.Meter { return &d.meter }

func (d *fakeDataset) Status() pipeline.Status {
	return pipeline.Status{
		Engine: uring.Status{Engine: "pread", Reason: "this is a test"},
		Fetch:  read.Stats{Strategy: "scan", BudgetBytes: 1 << 30, HeldBytes: 1 << 20},
	}
}

func (d *fakeDataset) setFault(f func(ctx context.Context, w uint64, off int64) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

func (d *fakeDataset) handles(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open += n
	return d.open
}

// record returns the bytes of one record.
func record(r uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, r)
	for i := range r % 57 {
		b = append(b, byte(r*7+i))
	}
	return b
}

func (d *fakeDataset) set(_ context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error) {
	var starts []uint64
	for r := uint64(0); r < d.records; r += 16 {
		starts = append(starts, r)
	}
	e, err := order.NewEpoch(d.spec.Order, epoch, append(starts, d.records), nil)
	if err != nil {
		return nil, err
	}
	v, err := order.NewView(e, done, deal)
	if err != nil {
		return nil, err
	}
	return &fakeSet{d: d, view: v}, nil
}

type fakeSet struct {
	d    *fakeDataset
	view *order.View
}

// files returns worker w's files, whole.
func (s *fakeSet) files(w uint64) (files [4][]byte) {
	numbers := make([]uint64, s.view.Count(w))
	s.view.Records(w, 0, numbers)
	for _, r := range numbers {
		files[stream.Offsets] = binary.LittleEndian.AppendUint64(files[stream.Offsets], uint64(len(files[stream.Data])))
		files[stream.Data] = append(files[stream.Data], record(r)...)
		files[stream.Crops] = fmt.Appendf(files[stream.Crops], "%d in epoch %d\n", r, s.view.Epoch().Number())
		files[stream.IDs] = binary.BigEndian.AppendUint64(append(files[stream.IDs], "fakefake"...), r)
	}
	files[stream.Offsets] = binary.LittleEndian.AppendUint64(files[stream.Offsets], uint64(len(files[stream.Data])))
	return files
}

func (s *fakeSet) Remaining() uint64 { return s.view.Remaining() }

func (s *fakeSet) SizeBytes(_ context.Context, w uint64, k stream.Kind) (int64, error) {
	return int64(len(s.files(w)[k])), nil
}

func (s *fakeSet) WholeRecords(_ context.Context, w uint64, _ stream.Kind, mark int64) (uint64, error) {
	offsets := s.files(w)[stream.Offsets]
	n := uint64(0)
	for n < s.view.Own(w) && int64(binary.LittleEndian.Uint64(offsets[8*(n+1):])) <= mark {
		n++
	}
	return n, nil
}

func (s *fakeSet) Open(_ context.Context, w uint64, k stream.Kind) (fileHandle, error) {
	s.d.handles(1)
	return &fakeHandle{d: s.d, w: w, k: k, bytes: s.files(w)[k]}, nil
}

type fakeHandle struct {
	d     *fakeDataset
	w     uint64
	k     stream.Kind
	bytes []byte
}

// ReadAt answers in slices of 100 bytes, as far as that many slices are allowed.
func (h *fakeHandle) ReadAt(ctx context.Context, r *stream.Reply, off int64, n int) error {
	h.d.mu.Lock()
	fault := h.d.fault
	h.d.mu.Unlock()
	if fault != nil && h.k == stream.Data {
		if err := fault(ctx, h.w, off); err != nil {
			return err
		}
	}
	b := h.bytes[min(off, int64(len(h.bytes))):min(off+int64(n), int64(len(h.bytes)))]
	for len(b) > 100 && len(r.Slices) < stream.MaxSlices-1 {
		r.Slices = append(r.Slices, b[:100])
		b = b[100:]
	}
	if len(b) > 0 {
		r.Slices = append(r.Slices, b)
	}
	return nil
}

func (h *fakeHandle) BeforeRecords() int64 { return 0 }

func (h *fakeHandle) Close() { h.d.handles(-1) }
