package fetch

import (
	"context"
	iofs "io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func version(info iofs.FileInfo) storage.Version {
	return storage.Version{ModTimeNanos: info.ModTime().UnixNano()}
}

// openStorage reads a dataset's files.
func openStorage(t testing.TB, dir string) storage.Storage { return &dirStorage{dir: dir} }

type dirStorage struct {
	dir string
	wg  sync.WaitGroup
}

func (d *dirStorage) List(context.Context, func(string, bool) bool, func(storage.Object) error) error {
	panic("not used")
}
func (d *dirStorage) Stat(context.Context, string) (storage.Object, error) { panic("not used") }
func (d *dirStorage) Close() error                                         { d.wg.Wait(); return nil }
func (d *dirStorage) Submit(reads []*storage.Read) {
	for _, r := range reads {
		d.wg.Go(func() {
			f, err := os.Open(filepath.Join(d.dir, r.Object.Path))
			if err == nil {
				_, err = f.ReadAt(r.Buf, r.OffsetBytes)
				f.Close()
			}
			if err != nil {
				err = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: storage.ErrChanged}
			}
			r.Done(err)
		})
	}
}
