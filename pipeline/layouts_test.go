package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// storedFiles are the files next to the index with a given ending.
func storedFiles(t testing.TB, s spec.Spec, ending string) []string {
	list, err := filepath.Glob(filepath.Join(s.IndexDir, "*"+ending))
	require.NoError(t, err)
	return list
}

// sizesOf opens the dataset, asks for all sizes of a set, and closes it.
func sizesOf(t testing.TB, s spec.Spec, epoch uint64, done []order.Done) []int64 {
	d, err := Open(context.Background(), s, Options{})
	require.NoError(t, err)
	set, err := d.Set(context.Background(), epoch, done, s.Deal)
	require.NoError(t, err)
	var all []int64
	for w := range s.Deal.Workers {
		size, err := set.SizeBytes(context.Background(), w, stream.Data)
		require.NoError(t, err)
		all = append(all, size)
	}
	require.NoError(t, d.Close()) // what was computed has now been stored
	return all
}

// damage changes one byte of a file.
func damage(t testing.TB, path string, at int) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[(at%len(b)+len(b))%len(b)] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

func TestLayoutOfSetIsStoredForNextRun(t *testing.T) {
	s := testSpec(t, makeLines(t))
	want := sizesOf(t, s, 0, nil)
	files := storedFiles(t, s, layoutEnding)
	require.Len(t, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)

	before, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, want, sizesOf(t, s, 0, nil))
	after, err := os.Stat(files[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "it was used, not written again")

	// The sizes that a second run returns come from the file: they change with it if its checksum
	// matches.
	c, err := Open(context.Background(), s, Options{})
	require.NoError(t, err)
	l := newLayouts(c.current.catalog, c.current.spec.Order, c.current.layouts.log)
	key := l.key(layoutEnding, 0, []order.Done(nil), s.Deal)
	payload, err := unframe(key, content)
	require.NoError(t, err)
	payload[8]++ // worker 0's bytes
	require.NoError(t, c.Close())
	require.NoError(t, os.WriteFile(files[0], frame(key, payload), 0o600))
	want[0]++
	require.Equal(t, want, sizesOf(t, s, 0, nil))
}

func TestDamagedLayoutIsRecomputed(t *testing.T) {
	s := testSpec(t, makeLines(t))
	want := sizesOf(t, s, 1, nil)
	files := storedFiles(t, s, layoutEnding)
	require.Len(t, files, 1)
	good, err := os.ReadFile(files[0])
	require.NoError(t, err)
	for at := range min(len(good), 120) {
		damage(t, files[0], at)
		if at%8 == 0 {
			require.Equal(t, want, sizesOf(t, s, 1, nil), "byte %d", at)
			now, err := os.ReadFile(files[0])
			require.NoError(t, err)
			require.Equal(t, good, now, "it was stored again")
		} else {
			require.NoError(t, os.WriteFile(files[0], good, 0o600))
		}
	}
	for _, cut := range []int{0, 1, len(good) - 1} {
		require.NoError(t, os.Truncate(files[0], int64(cut)))
		require.Equal(t, want, sizesOf(t, s, 1, nil), "cut to %d bytes", cut)
	}
}

func TestLayoutKeyCoversAllInputs(t *testing.T) {
	s := testSpec(t, makeLines(t))
	sizesOf(t, s, 0, nil)
	known := 1
	another := func(what string, s spec.Spec, epoch uint64, done []order.Done) {
		sizesOf(t, s, epoch, done)
		known++
		require.Len(t, storedFiles(t, s, layoutEnding), known, what)
	}
	another("epoch", s, 1, nil)
	another("done", s, 0, []order.Done{order.First(10, s.Order)})
	for what, change := range map[string]func(*spec.Spec){
		"seed":          func(s *spec.Spec) { s.Order.Seed++ },
		"shuffle":       func(s *spec.Spec) { s.Order.Shuffle = spec.ShuffleBlock },
		"size":          func(s *spec.Spec) { s.Order.SizeRecords++ },
		"lanes":         func(s *spec.Spec) { s.Order.Lanes++ },
		"chunk records": func(s *spec.Spec) { s.Order.ChunkRecords++ },
		"chunk bytes":   func(s *spec.Spec) { s.Order.ChunkBytes++ },
		"workers":       func(s *spec.Spec) { s.Deal.Workers++ },
		"batch":         func(s *spec.Spec) { s.Deal.Batch++ },
		"deal":          func(s *spec.Spec) { s.Deal.Dealing = spec.DealContiguous },
		"tail":          func(s *spec.Spec) { s.Deal.Tail = spec.TailPad },
	} {
		changed := s
		change(&changed)
		another(what, changed, 0, nil)
	}
	// A record of another size in a shard that otherwise looks the same.
	shard := filepath.Join(s.Dataset, "s0.jsonl")
	b, err := os.ReadFile(shard)
	require.NoError(t, err)
	i := slices.Index(b, '\n') + 1
	i += slices.Index(b[i:], '\n')
	copy(b[i-2:], "\n\"}") // moves the end of the second record two bytes forward
	require.NoError(t, os.WriteFile(shard, b, 0o644))
	another("content", s, 0, nil)
}

func TestStoredLayoutsAreBounded(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	for epoch := range uint64(storedLayouts + 5) {
		set, err := d.Set(context.Background(), epoch, nil, s.Deal)
		require.NoError(t, err)
		_, err = set.SizeBytes(context.Background(), 0, stream.Data)
		require.NoError(t, err)
	}
	d.current.source.Close()
	require.Len(t, storedFiles(t, s, layoutEnding), storedLayouts)
	require.Empty(t, storedFiles(t, s, ".tmp"))
}

func TestNothingIsStoredWithoutIndexDirectory(t *testing.T) {
	s := testSpec(t, makeLines(t))
	want := sizesOf(t, s, 0, nil)
	s.IndexDir = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(s.IndexDir, nil, 0o600))
	require.Equal(t, want, sizesOf(t, s, 0, nil))
}

// makeManyRecords makes a dataset with several states per epoch, in a sparse file.
func makeManyRecords(t testing.TB) spec.Spec {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "s.bin"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1_500_000*4))
	require.NoError(t, f.Close())
	s := spec.Default()
	s.Dataset, s.IndexDir = dir, t.TempDir()
	s.Format.Name, s.Format.RecordBytes = "fixed", 4
	s.Order.SizeRecords, s.Deal.Workers = 1000, 2
	return s
}

func TestEpochStatesAreStoredForNextRun(t *testing.T) {
	s := makeManyRecords(t)
	records := func(d *Dataset) []uint64 {
		set, err := d.Set(context.Background(), 3, nil, s.Deal)
		require.NoError(t, err)
		got := make([]uint64, 5000)
		for i := range 10 {
			set.View().Records(0, uint64(i)*70_000, got[500*i:500*(i+1)])
		}
		return got
	}
	plain := open(t, s)
	want := records(plain)

	sizesOf(t, s, 3, nil)
	files := storedFiles(t, s, statesEnding)
	require.Len(t, files, 1)
	again := open(t, s)
	e, err := again.Epoch(3)
	require.NoError(t, err)
	require.True(t, e.Prepared(), "the states were read")
	require.Equal(t, want, records(again))

	for _, at := range []int{0, 8, 16, 48, 60, -1} {
		if testing.Short() && at != 0 {
			continue // under the race detector, the place of the damage makes no difference
		}
		damage(t, files[0], at)
		d := open(t, s)
		e, err := d.Epoch(3)
		require.NoError(t, err)
		require.False(t, e.Prepared(), "byte %d is damaged", at)
		require.Equal(t, want, records(d))
		damage(t, files[0], at) // repairs it
	}
	for epoch := range uint64(storedStates + 2) {
		sizesOf(t, s, epoch, nil)
	}
	require.Len(t, storedFiles(t, s, statesEnding), storedStates)
}

func FuzzUnframe(f *testing.F) {
	key := [32]byte{1, 2, 3}
	f.Add(frame(key, nil))
	f.Add(frame(key, []byte("payload")))
	f.Add(frame([32]byte{}, []byte("payload")))
	f.Add([]byte(storedMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := unframe(key, b)
		if err == nil {
			require.Equal(t, b, frame(key, payload))
		}
	})
}

// BenchmarkRemount opens a dataset of 1.5 million records and asks for the sizes of its streams,
// as in the first run and as in later runs.
func BenchmarkRemount(b *testing.B) {
	for _, stored := range []bool{false, true} {
		b.Run(fmt.Sprintf("stored=%t", stored), func(b *testing.B) {
			s := makeManyRecords(b)
			for b.Loop() {
				if !stored {
					s.Order.Seed++
				}
				sizesOf(b, s, 0, nil)
			}
		})
	}
}
