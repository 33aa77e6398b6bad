package fs

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// The document of a position is the one that a mount has after it was restored there.
func TestAPositionIsAFileWithTheDocumentOfTheMountThere(t *testing.T) {
	for _, change := range []func(*spec.Spec){
		func(*spec.Spec) {},
		func(s *spec.Spec) { s.Deal.Workers, s.Deal.Batch, s.Deal.Tail = 3, 7, spec.TailDrop },
		func(s *spec.Spec) { s.Deal.Dealing, s.Deal.Tail = spec.DealContiguous, spec.TailPad },
		func(s *spec.Spec) { s.Order.Groups, s.Order.Batch, s.Deal.Batch = 2, 8, 8 },
	} {
		d := newFakeDataset(2)
		change(&d.spec)
		m := mountFake(t, d)
		for _, samples := range []uint64{0, 1, 448, 999, 1000} {
			path := m.path("epoch-4", fmt.Sprintf("from-%d", samples), "checkpoint")
			doc := m.read(path)
			at := fmt.Sprintf(`{"epoch": 4, "samples": %d}`, samples)
			if samples == 1000 {
				at = `{"epoch": 5}`
			}
			require.Zero(t, m.write(at))
			require.Equal(t, m.read(m.path("checkpoint")), doc, at)
			require.EqualValues(t, len(doc), m.must(call{Op: "stat", Path: path}).Size)
			require.Equal(t, doc, m.read(path), "read again")
			require.Zero(t, m.write(doc), "it can be restored")
			require.Equal(t, m.read(m.path("checkpoint")), doc)
		}
	}
}

func TestPositionIsListedInFromM(t *testing.T) {
	m := mount(t, 1)
	require.Equal(t, []string{"checkpoint", "worker-0-of-1.ids", "worker-0-of-1.offsets", "worker-0-of-1.rec"},
		m.must(call{Op: "list", Path: m.path("epoch-0", "from-7")}).Names)
	require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path("epoch-0", "checkpoint")}).Errno)
}

// A loop that counts steps × batch × workers counts beyond the end if the last batches are padded
// or not full.
func TestPaddedCountBeyondEndMeansEnd(t *testing.T) {
	for _, c := range []struct {
		tail        spec.Tail
		batch       uint64
		there, gone []uint64
	}{
		{spec.TailPad, 64, []uint64{1000, 1001, 1024, 2048, 999 + 64*spec.MaxWorkers}, []uint64{1000 + 64*spec.MaxWorkers, 1 << 40}},
		{spec.TailKeep, 64, []uint64{1000, 1024}, []uint64{1 << 40}},
		{spec.TailDrop, 64, []uint64{1000}, []uint64{1001, 1024}},
	} {
		d := newFakeDataset(2)
		d.spec.Deal.Tail, d.spec.Deal.Batch = c.tail, c.batch
		m := mountFake(t, d)
		end := m.read(m.path("epoch-0/from-1000/checkpoint"))
		for _, samples := range c.there {
			dir := fmt.Sprintf("epoch-0/from-%d", samples)
			require.Equal(t, end, m.read(m.path(dir, "checkpoint")), "%s %d", c.tail, samples)
			require.Equal(t, m.read(m.path("epoch-0/from-1000/worker-0-of-1.rec")), m.read(m.path(dir, "worker-0-of-1.rec")))
			require.Zero(t, m.write(fmt.Sprintf(`{"epoch": 0, "samples": %d}`, samples)))
			require.EqualValues(t, 0, m.must(call{Op: "stat", Path: m.path("worker-1.rec")}).Size, "nothing is left")
		}
		for _, samples := range c.gone {
			require.Equal(t, syscall.ENOENT, m.do(call{Op: "stat", Path: m.path(fmt.Sprintf("epoch-0/from-%d", samples), "checkpoint")}).Errno, "%s %d", c.tail, samples)
			require.Equal(t, syscall.EINVAL, m.write(fmt.Sprintf(`{"epoch": 0, "samples": %d}`, samples)))
			require.Contains(t, m.read(m.path("status")), fmt.Sprintf("samples (%d) must be at most 1000", samples))
		}
	}
}

// In a growing dataset, the end of an epoch is the start of the next one only once that has
// started.
func TestTheEndOfAnEpochOfAGrowingDatasetIsTheStartOfTheNextOnceThatHasBegun(t *testing.T) {
	s := mountGrowing(t)
	records := strings.TrimSpace(s.must(`python3 -c 'import json; print(json.load(open("dataset.json"))["records"])'`))
	read := func() (state checkpoint.State) {
		doc := s.must("cat epoch-0/from-" + records + "/checkpoint")
		require.True(t, json.Valid([]byte(doc)))
		state, err := checkpoint.Parse([]byte(doc))
		require.NoError(t, err, doc)
		return state
	}
	end := read()
	require.Zero(t, end.Epoch)
	require.NotEmpty(t, end.Run)
	require.Equal(t, records, fmt.Sprint(end.Done[0].Taken()))
	require.NotContains(t, s.must("ls"), "epoch-1", "asking has begun nothing")
	s.must("cat epoch-1/worker-0-of-1.txt > /dev/null")
	next := read()
	require.EqualValues(t, 1, next.Epoch)
	require.Equal(t, end.Run, next.Run)
	require.NotEqual(t, end.Dataset, "")
	require.Zero(t, next.Done[0].Taken())
}
