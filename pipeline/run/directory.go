package run

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

const (
	infoName     = "run.json"
	epochPrefix  = "epoch-"
	snapshotsDir = "snapshots"
	// oldTemp is the age at which a temporary file counts as abandoned.
	oldTemp = 24 * time.Hour
)

// None is the number of the latest epoch if there is none.
const None = ^uint64(0)

// Directory is a run directory. It is safe for concurrent use, by any number of processes
// on any number of machines.
type Directory struct {
	path    string
	info    Info
	trusted index.Trusted
	sys     system

	mu     sync.Mutex
	latest uint64 // the highest epoch seen so far, or None
}

// Open opens the run directory at path. If there is none, or no run has begun in it, Open begins
// one with want's format, kind and newest; want has no Version, Run and Made. If the existing run
// differs from want, Open returns an error.
func Open(path string, want Info) (*Directory, error) {
	return open(path, want, kernel{})
}

func open(path string, want Info, sys system) (d *Directory, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("run directory: %w", err)
		}
	}()
	if err := os.MkdirAll(filepath.Join(path, snapshotsDir), 0o755); err != nil {
		return nil, err
	}
	d = &Directory{path: path, sys: sys, latest: None}
	if err = d.trust(); err != nil {
		return nil, err
	}
	err = d.readInfo()
	if errors.Is(err, fs.ErrNotExist) {
		err = d.begin(want)
	}
	if err != nil {
		return nil, err
	}
	if err := d.Suits(want); err != nil {
		return nil, err
	}
	d.removeOld()
	return d, d.list()
}

// Read opens an existing run directory for reading, and changes nothing. The error is
// fs.ErrNotExist if no run has begun there.
func Read(path string) (*Directory, error) {
	d := &Directory{path: path, sys: kernel{}, latest: None}
	err := d.trust()
	if err == nil {
		err = d.readInfo()
	}
	if err == nil {
		err = d.list()
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return d, nil
}

// trust determines whose files are trusted. A world-writable directory is rejected: anyone could
// remove the run's files. (A member of its group could too, but files that untrusted users put in
// their place are ignored.)
func (d *Directory) trust() error {
	info, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if m := info.Mode(); m.Perm()&0o002 != 0 && m&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: other users may write to it (mode %04o): run chmod o-w, or name another directory with --run", d.path, m.Perm())
	}
	d.trusted, err = index.TrustIn(d.path)
	return err
}

// Path returns the path of the directory.
func (d *Directory) Path() string { return d.path }

// Info returns the description of the run.
func (d *Directory) Info() Info { return d.info }

func (d *Directory) readInfo() error {
	var i Info
	err := d.readRecord(infoName, &i, func() error { return i.validate() })
	if err == nil {
		d.info = i
	}
	return err
}

// begin creates run.json, or reads the one that another node has created meanwhile.
func (d *Directory) begin(want Info) error {
	var number [16]byte
	if _, err := rand.Read(number[:]); err != nil {
		return err
	}
	want.Version, want.Run, want.Made = Version, hex.EncodeToString(number[:]), time.Now().UTC().Format(time.RFC3339)
	return d.beginAs(want)
}

func (d *Directory) beginAs(i Info) error {
	if err := i.validate(); err != nil {
		return err
	}
	text, err := encode(&i)
	if err == nil {
		err = d.publish(infoName, text)
	}
	if err != nil && !errors.Is(err, errTaken) {
		return fmt.Errorf("starting a run in %s: %w", d.path, err)
	}
	return d.readInfo()
}

// Suits returns an error if shards of want, which has no Version, Run and Made, don't belong to the
// run.
func (d *Directory) Suits(want Info) error {
	for _, x := range []struct{ what, here, there string }{
		{"format", d.info.Format, want.Format}, {"kind", d.info.Kind, want.Kind}, {"order of newest shards (--newest)", d.info.Newest, want.Newest},
	} {
		if x.here != x.there {
			return fmt.Errorf("%s: its %s is %q, not %q: name another directory with --run", d.path, x.what, x.here, x.there)
		}
	}
	return nil
}

// readRecord reads a file of two lines. The error is fs.ErrNotExist if there is none.
func (d *Directory) readRecord(name string, record any, validate func() error) error {
	text, err := d.read(name, maxRecordBytes)
	if err != nil {
		return err
	}
	err = decode(text, record)
	if err == nil {
		err = validate()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

// read reads up to most bytes of a trusted file.
func (d *Directory) read(name string, most int64) ([]byte, error) {
	path := filepath.Join(d.path, name)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil {
		err = d.trusted.Believable(info)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// list finds the latest epoch by listing the directory, once.
func (d *Directory) list() error {
	numbers, err := d.Numbers()
	if n := len(numbers); n > 0 {
		d.latest = numbers[n-1]
	}
	return err
}

// removeOld removes temporary files of processes that were killed. Other processes may do so at the
// same time.
func (d *Directory) removeOld() {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "tmp-") || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > oldTemp {
			_ = d.sys.remove(filepath.Join(d.path, e.Name()))
		}
	}
}

// system has the calls that change a directory. Tests make each of them fail, or kill the process
// before it.
type system interface {
	// create writes text durably to a file with a new name in dir.
	create(dir, pattern string, text []byte) (path string, err error)
	rename(from, to string) error // replaces
	link(from, to string) error
	renameNew(from, to string) error // does not replace: fs.ErrExist
	remove(path string) error
	syncDir(dir string) error
	names(path string) (int, error) // number of a file's names
}

type kernel struct{}

func (kernel) create(dir, pattern string, text []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, pattern) // O_EXCL, 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644) // readable for other users of the run
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func (kernel) rename(from, to string) error { return os.Rename(from, to) }
func (kernel) link(from, to string) error   { return os.Link(from, to) }
func (kernel) remove(path string) error     { return os.Remove(path) }

func (kernel) renameNew(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return &fs.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

func (kernel) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil // not supported there
	}
	return errors.Join(err, d.Close())
}

func (kernel) names(path string) (int, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(s.Nlink), nil
}

// tempPattern is the name pattern of temporary files.
const tempPattern = "tmp-*"

// errTaken means that a name has already been published, by this process or another.
var errTaken = errors.New("it has been published before")

// publish creates a file with a new name atomically and durably. errTaken means that the name
// exists already: then its contents count.
func (d *Directory) publish(name string, text []byte) error {
	temp, err := d.sys.create(d.path, tempPattern, text)
	if err != nil {
		return err
	}
	to := filepath.Join(d.path, name)
	err = d.sys.link(temp, to)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		// This link itself may have succeeded: a server's reply can get lost, and the client then
		// repeats the request.
		if n, failed := d.sys.names(temp); failed != nil || n != 2 {
			return errors.Join(errTaken, d.sys.remove(temp))
		}
	case noLinks(err):
		return d.publishByRename(temp, to)
	default:
		return errors.Join(err, d.sys.remove(temp))
	}
	return errors.Join(d.sys.remove(temp), d.sys.syncDir(d.path))
}

func (d *Directory) publishByRename(temp, to string) error {
	err := d.sys.renameNew(temp, to)
	switch {
	case err == nil:
		return d.sys.syncDir(d.path)
	case errors.Is(err, fs.ErrExist):
		return errors.Join(errTaken, d.sys.remove(temp))
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		err = fmt.Errorf("%s: its file system supports neither hard links nor renames that do not replace, so two nodes could start the same epoch: name a directory on another file system with --run", d.path)
	}
	return errors.Join(err, d.sys.remove(temp))
}

// noLinks reports whether err means that the file system has no hard links.
func noLinks(err error) bool {
	for _, no := range []error{unix.EPERM, unix.ENOTSUP, unix.ENOSYS, unix.EOPNOTSUPP, unix.EMLINK} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// replace writes a file whose contents are the same for every writer.
func (d *Directory) replace(dir, name string, text []byte) error {
	temp, err := d.sys.create(d.path, tempPattern, text)
	if err != nil {
		return err
	}
	if err := d.sys.rename(temp, filepath.Join(dir, name)); err != nil {
		return errors.Join(err, d.sys.remove(temp))
	}
	return d.sys.syncDir(dir)
}
