package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// Make describes a dataset to make.
type Make struct {
	Dir     string
	Shape   synthetic.Shape
	Records uint64
	Shards  uint64 // 0: about 100 MB each, or one game each for lc0
	// Progress, if set, is called periodically with the decoded bytes made so far and the
	// approximate total.
	Progress func(bytes, total int64)
}

// shardBytes is the default decoded size of a shard.
const shardBytes = 100e6

// maxRecords bounds the number of records, so that it fits into the samples' keys.
const maxRecords = 1e9

// Made is what has been made.
type Made struct {
	Dir     string `json:"made"`
	Format  string `json:"format"`
	Shards  uint64 `json:"shards"`
	Records uint64 `json:"records"`
	// DecodedBytes is the size before, FileBytes after compression.
	DecodedBytes int64         `json:"decoded_bytes"`
	FileBytes    int64         `json:"file_bytes"`
	Took         time.Duration `json:"took_nanos"`
}

// Validate reports all problems. It chooses the number of shards if none is given.
func (m *Make) Validate() error {
	problems := []error{m.Shape.Validate()}
	if m.Records < 1 || m.Records > maxRecords {
		problems = append(problems, fmt.Errorf("records (%d) must be between 1 and %d", m.Records, uint64(maxRecords)))
	}
	if m.Shards == 0 {
		m.Shards = min(max(uint64(float64(m.Records)*float64(m.Shape.RecordBytes)/shardBytes+0.5), 1), max(m.Records, 1))
		if m.Shape.Format == "lc0" && m.Shape.Codec == "gz" { // one game per shard
			m.Shards = min(max((m.Records+synthetic.GameFrames-1)/synthetic.GameFrames, 1), max(m.Records, 1))
		}
	}
	if m.Shards > m.Records && m.Records > 0 {
		problems = append(problems, fmt.Errorf("shards (%d) must be at most the number of records (%d)", m.Shards, m.Records))
	}
	return errors.Join(problems...)
}

// Run makes the dataset on all cores. The directory must be empty or not exist. It appears when it
// is complete: if anything fails, or ctx ends, nothing is left of it.
func (m Make) Run(ctx context.Context) (made Made, err error) {
	begin := time.Now()
	if err := m.Validate(); err != nil {
		return Made{}, err
	}
	made = Made{Format: m.Shape.Format, Shards: m.Shards, Records: m.Records}
	made.Dir, err = completed(m.Dir, func(half string) (err error) {
		made.DecodedBytes, made.FileBytes, err = m.shards(ctx, half)
		return err
	})
	if err != nil {
		return Made{}, err
	}
	made.Took = time.Since(begin)
	return made, nil
}

// completed lets fill write to a directory next to dir. On success the directory replaces dir,
// otherwise it is removed. It returns dir's path.
func completed(dir string, fill func(half string) error) (path string, err error) {
	if path, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := vacant(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	// Next to it, so that a rename suffices.
	half, err := os.MkdirTemp(filepath.Dir(path), ".lsiofs-make-")
	if err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	if err = os.Chmod(half, 0o755); err == nil {
		err = fill(half)
	}
	if err == nil { // rename replaces an empty directory, but not one with files
		if err = unix.Rename(half, path); err != nil {
			err = fmt.Errorf("make %s: %w", path, err)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(half))
	}
	return path, nil
}

// vacant returns an error if a directory is not empty.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("make %s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("make %s: it is not empty (it has %q): name a directory that is, or that does not exist", dir, entries[0].Name())
	}
	return nil
}

// shards makes all shards in dir.
func (m *Make) shards(ctx context.Context, dir string) (decoded, written int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, bytes, files atomic.Int64
	stop := reporting(m.Progress, &bytes, int64(m.Records)*m.Shape.RecordBytes)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := uint64(next.Add(1) - 1); i < m.Shards && ctx.Err() == nil; i = uint64(next.Add(1) - 1) {
				n, err := m.shard(ctx, dir, i, &bytes)
				files.Add(n)
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	stop()
	return bytes.Load(), files.Load(), context.Cause(ctx)
}

// reportEvery is the interval of progress reports.
const reportEvery = 200 * time.Millisecond

// reporting reports progress, unless it is nil, until stop is called.
func reporting(progress func(bytes, total int64), bytes *atomic.Int64, total int64) (stop func()) {
	if progress == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(reportEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				progress(bytes.Load(), total)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// shard makes shard i and returns its size.
func (m *Make) shard(ctx context.Context, dir string, i uint64, bytes *atomic.Int64) (int64, error) {
	path := filepath.Join(dir, fmt.Sprintf("shard-%05d%s", i, m.Shape.Extension()))
	// Shards differ by at most one record.
	first, last := i*m.Records/m.Shards, (i+1)*m.Records/m.Shards
	if m.Shape.Format == "files" {
		if err := os.Mkdir(path, 0o777); err != nil {
			return 0, err
		}
		return m.Shape.WriteFiles(path, first, last-first, func(n int64) error {
			bytes.Add(n)
			return context.Cause(ctx)
		})
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	err = m.Shape.WriteShard(stopping{ctx, f}, first, last-first, func(n int64) { bytes.Add(n) })
	size, serr := f.Seek(0, io.SeekCurrent)
	return size, errors.Join(err, serr, f.Close())
}

// stopping is a writer that fails once ctx has ended.
type stopping struct {
	ctx context.Context
	out io.Writer
}

func (s stopping) Write(p []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	return s.out.Write(p)
}
