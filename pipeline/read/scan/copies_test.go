package scan

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// lostCopies maps copies of objects that have been damaged and are known to be lost.
type lostCopies struct {
	*local.Storage
	checks *atomic.Int64 // number of calls
}

func (s lostCopies) Caps() storage.Caps { return storage.Caps{Mapper: s} }

func (s lostCopies) Map(o storage.Object, done func(storage.Mapping, error)) {
	file, err := s.Stat(context.Background(), o.Path)
	if err != nil {
		go done(nil, err)
		return
	}
	s.Storage.Map(file, func(m storage.Mapping, err error) {
		if err == nil {
			m = lostCopy{m, s.checks}
		}
		done(m, err)
	})
}

type lostCopy struct {
	storage.Mapping
	checks *atomic.Int64
}

func (lostCopy) Leased() bool { return false }
func (c lostCopy) Check() error {
	c.checks.Add(1)
	return &storage.Error{Object: "a copy", Err: storage.ErrReadAgain}
}

// A lost copy is not an error of the dataset, even if a record's checksum reveals it first: the
// record is read again, and no error is noted.
func TestLostCopyIsNotADatasetError(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 200, MaxBytes: 3000, Checksummed: true})
	dir := t.TempDir()
	for _, s := range d.Index.ShardTable {
		b, err := os.ReadFile(filepath.Join(d.Dir, s.Object.Path))
		require.NoError(t, err)
		for i := 0; i < len(b); i += 1000 {
			b[i] ^= 1
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, s.Object.Path), b, 0o600))
	}
	store := openMapper(t, d)
	var checks atomic.Int64
	store.mapper = lostCopies{readtest.OpenFiles(t, dir), &checks}
	sc := newMappedScanner(t, d, 64<<20, store)
	seq := readtest.InOrder(d.Index)
	r := sc.Open(seq)
	defer r.Close()
	var l budget.Records
	for k := 0; k < len(seq); {
		err := r.Read(t.Context(), uint64(k), 30, &l)
		if err == nil {
			err = l.Check()
		}
		if errors.Is(err, storage.ErrReadAgain) {
			l.Release()
			continue
		}
		require.NoError(t, err)
		for i, b := range l.Records {
			require.Equal(t, string(d.Records[seq[k+i]]), string(b))
		}
		k += len(l.Records)
		l.Release()
	}
	require.Positive(t, checks.Load(), "a copy was mapped; whether a reader is told depends on who looks first")
	require.Empty(t, sc.errors())
}
