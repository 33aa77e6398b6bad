package readtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// Reader is a reader of any package below read.
type Reader interface {
	Read(ctx context.Context, k uint64, n int, l *budget.Records) error
}

// ReadAll reads a sequence to its end, n records at a time, and compares all records.
func ReadAll(t testing.TB, d *Dataset, r Reader, seq List, n int) {
	var l budget.Records
	for k := 0; k < len(seq); {
		require.NoError(t, r.Read(context.Background(), uint64(k), min(n, len(seq)-k), &l))
		require.NotEmpty(t, l.Records)
		require.LessOrEqual(t, len(l.Records), n)
		for i, b := range l.Records {
			if want := d.Records[seq[k+i]]; string(want) != string(b) {
				require.Equal(t, string(want), string(b), "record %d of the sequence, number %d", k+i, seq[k+i])
			}
		}
		k += len(l.Records)
		l.Release()
	}
}

// ReadEqual is ReadAll with an error instead of ending the test.
func ReadEqual(d *Dataset, r Reader, seq List, n int) error {
	var l budget.Records
	for k := 0; k < len(seq); {
		if err := r.Read(context.Background(), uint64(k), min(n, len(seq)-k), &l); err != nil {
			return err
		}
		for i, b := range l.Records {
			if string(d.Records[seq[k+i]]) != string(b) {
				return fmt.Errorf("record %d of the sequence, number %d, is wrong", k+i, seq[k+i])
			}
		}
		k += len(l.Records)
		l.Release()
	}
	return nil
}

// LendOne reads record k of a sequence, and compares it.
func LendOne(t *testing.T, d *Dataset, r Reader, seq List, k uint64) {
	t.Helper()
	var l budget.Records
	require.NoError(t, r.Read(context.Background(), k, 1, &l))
	require.Equal(t, string(d.Records[seq[k]]), string(l.Records[0]))
	l.Release()
}

// Ask requests records from k on, so that they are read ahead, and does not wait for them: what
// follows does not depend on when they arrive.
func Ask(t *testing.T, r Reader, k uint64, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var l budget.Records
	require.ErrorIs(t, r.Read(ctx, k, n, &l), context.Canceled)
}

// AskOn reads on from record k, so that much is read ahead.
func AskOn(t *testing.T, r Reader, k uint64) {
	t.Helper()
	for i := range uint64(4) {
		Ask(t, r, k+i, 1)
	}
}

// Made is the reads that were submitted to a storage, and still wanted when it began them.
type Made struct {
	sync.Mutex
	Reads []storage.Read
}

// HoldReads returns a storage that holds all reads until Release is called.
func HoldReads(t *testing.T, d *Dataset) (*faulty.Storage, *Made) {
	store, m := OpenStorage(t, d.Dir), &Made{}
	store.Before = func(r *storage.Read) error {
		m.Lock()
		defer m.Unlock()
		m.Reads = append(m.Reads, *r)
		return nil
	}
	store.Hold()
	return store, m
}
