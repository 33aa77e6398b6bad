package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// openFaulty opens a dataset over a storage that set makes fail.
func openFaulty(t *testing.T, s spec.Spec, set func(*faulty.Storage)) *Dataset {
	t.Helper()
	d, err := Open(context.Background(), s, Options{Faults: func(below storage.Storage) storage.Storage {
		f := faulty.New(below)
		set(f)
		return f
	}})
	require.NoError(t, err)
	return d
}

// readFailing reads a worker's stream, and repeats reads that fail.
func readFailing(t *testing.T, d *Dataset, failed func(error)) (all []byte) {
	t.Helper()
	set, err := d.Set(t.Context(), 0, nil, d.Spec().Deal)
	require.NoError(t, err)
	h := set.Open(0, stream.Data)
	defer h.Close()
	var r stream.Reply
	for {
		if err := h.ReadAt(t.Context(), &r, int64(len(all)), 10_000); err != nil {
			require.Zero(t, r.Len(), "an error leaves the reply empty")
			failed(err)
			continue
		}
		if r.Len() == 0 {
			return all
		}
		for _, b := range r.Slices {
			all = append(all, b...)
		}
		r.Release()
	}
}

// TestStreamSurvivesFailureOfEachRead fails each read of storage once, one after the other.
// TestMain checks that goroutines end.
func TestStreamSurvivesFailureOfEachRead(t *testing.T) {
	dir := makeLines(t)
	// A waiting reader gets a decoder and segments whatever the budget is, and data read ahead may
	// wait in addition to what the reader has.
	const slack = 2 << 20
	for _, way := range []spec.Read{spec.ReadScan, spec.ReadSpool} {
		t.Run(string(way), func(t *testing.T) {
			s := testSpec(t, dir)
			s.Read, s.IO, s.MemoryBytes = way, spec.IOPread, 1<<20
			s.Order.ChunkRecords = 100
			clean := open(t, s)
			want := readFailing(t, clean, func(err error) { require.NoError(t, err) })
			told := 0
			for n := int64(0); ; n++ {
				var injected atomic.Bool
				nth := faulty.Nth(n)
				d := openFaulty(t, s, func(f *faulty.Storage) {
					f.Before = func(r *storage.Read) error {
						err := nth(r)
						if err != nil {
							injected.Store(true)
						}
						return err
					}
				})
				got := readFailing(t, d, func(err error) {
					told++
					record, ok := errors.AsType[*read.RecordError](err)
					require.True(t, ok, "%v", err)
					require.ErrorIs(t, err, faulty.ErrInjected)
					read, ok := errors.AsType[*storage.Error](err)
					require.True(t, ok, "%v", err)
					require.Equal(t, record.Shard, read.Object)
				})
				require.Equal(t, string(want), string(got))
				require.LessOrEqual(t, d.Status().Fetch.HeldBytes, s.MemoryBytes+slack)
				require.NoError(t, d.Close())
				if !injected.Load() {
					require.Positive(t, n)
					break
				}
			}
			require.Positive(t, told)
		})
	}
}

// One in three of the places that are read fails twice: the reads succeed in the end, and no reader
// gets an error.
func TestReadsThatFailForAWhileAreMadeAgainAndCounted(t *testing.T) {
	s := testSpec(t, makeLines(t))
	whole := func(err error) { require.NoError(t, err) }
	want := readFailing(t, open(t, s), whole)
	var mu sync.Mutex
	failures := map[string]int{} // failures left, by place
	d := openFaulty(t, s, func(f *faulty.Storage) {
		f.Before = func(r *storage.Read) error {
			mu.Lock()
			defer mu.Unlock()
			place := fmt.Sprint(r.Object.Path, r.OffsetBytes)
			if _, known := failures[place]; !known {
				failures[place] = 0
				if len(failures)%3 == 1 {
					failures[place] = 2
				}
			}
			if failures[place] == 0 {
				return nil
			}
			failures[place]--
			return syscall.EAGAIN
		}
	})
	got := readFailing(t, d, whole)
	require.Equal(t, string(want), string(got))
	require.Positive(t, d.Status().Retries.Retries)
	require.NoError(t, d.Close())
}

func TestVerifyDoesNotReportTransientReadErrorAsDamage(t *testing.T) {
	s := testSpec(t, makeFiles(t, 100))
	s.Format.Name = "files"
	var n atomic.Int64
	d := openFaulty(t, s, func(f *faulty.Storage) {
		f.Before = func(*storage.Read) error {
			if n.Add(1) <= 3 {
				return syscall.ETIMEDOUT
			}
			return nil
		}
	})
	defer func() { require.NoError(t, d.Close()) }()
	r, err := d.VerifyShards(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.Greater(t, n.Load(), int64(3))
}
