package tune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

const (
	// blockBytes divides all offsets.
	blockBytes = 4 << 10
	// mostFiles and mostEntries bound how many files of PATH are opened and how many entries are
	// visited.
	mostFiles   = 64
	mostEntries = 100_000
)

// region is the beginning of a file, from which to read.
type region struct {
	file  *uring.File
	bytes int64
}

// data is the data to read.
type data struct {
	regions []region
	bytes   int64  // of all regions
	about   string // description
}

func (d *data) close() error {
	var errs []error
	for _, r := range d.regions {
		errs = append(errs, r.file.Close())
	}
	return errors.Join(errs...)
}

func (d *data) add(fd int, bytes int64) {
	bytes &^= blockBytes - 1
	d.regions = append(d.regions, region{uring.NewFile(fd, uring.DirectAlways), bytes})
	d.bytes += bytes
}

// openData opens files of PATH, or creates a temporary file if they contain too little.
func openData(ctx context.Context, c *Config, kind storage.Kind, progress func(done, total int64)) (*data, error) {
	files, dir, err := listFiles(ctx, c.Path, c.largestRead())
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, f := range files {
		total += f.bytes
	}
	if total >= c.MinDataBytes {
		if d, err := openFiles(files, c.largestRead(), c.DataBytes, kind); err == nil && d.bytes >= min(c.MinDataBytes, c.DataBytes) {
			return d, nil
		} else if d != nil {
			_ = d.close() // files that can't be opened don't count
		}
	}
	d, err := makeData(ctx, dir, c.TempBytes, progress)
	if err != nil {
		return nil, fmt.Errorf("%s has less than %s in files of %s and more that can be read, so a temporary file is needed: %w",
			c.Path, size(c.MinDataBytes), size(c.largestRead()), err)
	}
	return d, nil
}

type listed struct {
	path  string
	bytes int64
}

// listFiles returns the files below a path that are at least as large as the largest read, and the
// directory of the path. Sparse files, which are read without a disk, are skipped, as is anything
// that can't be accessed.
func listFiles(ctx context.Context, path string, least int64) (files []listed, dir string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if dir = path; !info.IsDir() {
		dir = filepath.Dir(path)
	}
	root := statfsID(path)
	entries := 0
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if entries++; err != nil || entries > mostEntries {
			if entries > mostEntries || p == path {
				return errors.Join(err, fs.SkipAll)
			}
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if p != path && strings.HasPrefix(e.Name(), ".") || e.IsDir() && statfsID(p) != root {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		var st unix.Stat_t
		if !e.Type().IsRegular() || unix.Stat(p, &st) != nil || st.Size < least || st.Blocks*512 < st.Size/10*9 {
			return nil
		}
		files = append(files, listed{p, st.Size})
		return nil
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return files, dir, err
}

// statfsID returns a number that distinguishes file systems while they are mounted.
func statfsID(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Dev
}

// openFiles opens some of the files, from the first to the last. So much is read from each that it
// is at most most bytes in total, but at least least bytes each. Files on disks that seek are read
// completely, so that the disks do seek.
func openFiles(files []listed, least, most int64, kind storage.Kind) (*data, error) {
	n := min(len(files), mostFiles)
	d := &data{}
	for i := range n {
		f := files[i*len(files)/n]
		fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			// With O_NONBLOCK, io_uring would fail a read that has to wait.
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
		}
		if err != nil {
			continue
		}
		bytes := f.bytes
		if kind != storage.KindDisk {
			bytes = min(bytes, max(most-d.bytes, 0)/int64(n-i))
		}
		d.add(fd, max(bytes, least))
	}
	d.about = fmt.Sprintf("%s of %d files", size(d.bytes), len(d.regions))
	return d, nil
}

// makeData creates a temporary file without a name, so that it disappears however the process ends.
func makeData(ctx context.Context, dir string, bytes int64, progress func(done, total int64)) (*data, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < bytes/8*9 {
		return nil, fmt.Errorf("%s has %s free, %s are needed", dir, size(free), size(bytes/8*9))
	}
	f, err := nameless(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := fillFile(ctx, f, bytes, progress); err != nil {
		return nil, fmt.Errorf("write a temporary file in %s: %w", dir, err)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &data{about: "a temporary file of " + size(bytes)}
	d.add(fd, bytes)
	return d, nil
}

// nameless creates a file without a name, or removes its name at once.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), filepath.Join(dir, "(tune)")), nil
	}
	f, err := os.CreateTemp(dir, ".lsiofs-tune-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fillFile writes bytes that no file system can compress or share.
func fillFile(ctx context.Context, f *os.File, bytes int64, progress func(done, total int64)) error {
	rng := rand.NewChaCha8([32]byte{'t', 'u', 'n', 'e'})
	b := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(b)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.ReadFull(rng, b); err != nil {
			return err
		}
		if _, err := f.Write(b[:min(int64(len(b)), bytes-at)]); err != nil {
			return err
		}
		if at%(64<<20) == 0 {
			// So that little is left to write at the end, when it can't be interrupted.
			_ = unix.SyncFileRange(int(f.Fd()), 0, at, unix.SYNC_FILE_RANGE_WRITE)
		}
		progress(at, bytes)
	}
	return f.Sync()
}
