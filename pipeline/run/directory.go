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

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

const (
	infoName     = "run.json"
	epochPrefix  = "epoch-"
	snapshotsDir = "snapshots"
	// oldTemp is after how long a file that is on its way is nobody's.
	oldTemp = 24 * time.Hour
)

// None is the number of the latest epoch where there is none.
const None = ^uint64(0)

// Directory is a run directory. It is safe for concurrent use, by any number of processes
// on any number of machines.
type Directory struct {
	path    string
	info    Info
	trusted index.Trusted
	sys     system

	mu     sync.Mutex
	latest uint64 // the highest epoch that has been seen, or None
}

// Open opens the run directory at path, and makes it where there is none, or none yet has
// been begun there: of shards of want's format and kind, which has no Version, Run and
// Made. A run of others is an error.
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

// Read opens a run directory that is there, to look at it, and changes nothing. The error is
// fs.ErrNotExist where no run has been begun there.
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

// trust finds out whose files count. A directory that all the world may write to is refused:
// whoever likes could take the run's files away. (A member of its group could as well, but
// what others put there in their place does not count.)
func (d *Directory) trust() error {
	info, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if m := info.Mode(); m.Perm()&0o002 != 0 && m&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: others may write to it (mode %04o): chmod o-w takes that right away; or name another one with --run", d.path, m.Perm())
	}
	d.trusted, err = index.TrustIn(d.path)
	return err
}

// Path is where the directory is.
func (d *Directory) Path() string { return d.path }

// Info is what the run is.
func (d *Directory) Info() Info { return d.info }

func (d *Directory) readInfo() error {
	var i Info
	err := d.readRecord(infoName, &i, func() error { return i.validate() })
	if err == nil {
		d.info = i
	}
	return err
}

// begin makes run.json, or reads the one that another node has made meanwhile.
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
		return fmt.Errorf("begin a run in %s: %w", d.path, err)
	}
	return d.readInfo()
}

// Suits says why shards of want, which has no Version, Run and Made, are not those of the run.
func (d *Directory) Suits(want Info) error {
	for _, x := range []struct{ what, here, there string }{
		{"format", d.info.Format, want.Format}, {"kind", d.info.Kind, want.Kind}, {"order of newest shards (--newest)", d.info.Newest, want.Newest},
	} {
		if x.here != x.there {
			return fmt.Errorf("%s: its %s is %q, and not %q: name another directory with --run", d.path, x.what, x.here, x.there)
		}
	}
	return nil
}

// readRecord reads a file of two lines. Its error is fs.ErrNotExist where there is none.
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

// read reads up to most bytes of a file that is believed.
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

// list finds the latest epoch, once.
func (d *Directory) list() error {
	numbers, err := d.Numbers()
	if n := len(numbers); n > 0 {
		d.latest = numbers[n-1]
	}
	return err
}

// removeOld removes what processes that were killed have left. Others do so, too.
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
