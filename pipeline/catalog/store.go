package catalog

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

var errNoDir = errors.New("there is no index directory")

// store is the index directory as one dataset sees it:
//
//	<name>.index              the sealed index
//	<name>.<random>.journal   finished shards of a build that runs or was interrupted
//	<name>.<random>.tmp       a file that is being written
//	<name>.<fingerprint>.gz   the lines of a fingerprint, for Explain
//
// name is a hash of all that decides what the index holds. Journals and
// temporary files are locked (flock) by the process that writes them, so those
// of dead processes are told from living ones'.
type store struct {
	dir string // empty where there is none
	// trusted are the users whose files count, see openStored.
	trusted Trusted
	key     [32]byte
	name    string
	log     *slog.Logger
}

// openStore chooses the index directory and names the dataset's files in it.
// It makes the directory; where that fails, the store is read or left alone.
func openStore(c *Config, t *target, log *slog.Logger) *store {
	s := &store{key: indexKey(c, t), log: log}
	s.name = hex.EncodeToString(s.key[:16])
	dir, refused, err := DirectoryFor(c.IndexDir, c.Dataset)
	if refused != nil {
		log.Warn("the index directory of the dataset is not used", "reason", refused, "instead", dir)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if s.dir = dir; err == nil {
		s.trusted, err = TrustIn(dir)
	}
	if err != nil {
		s.dir = ""
		log.Warn("no index directory: the index is kept in memory and built anew by the next run; name a directory with --index-dir", "error", err)
	}
	return s
}

// indexKey hashes everything that decides what an index of unchanged files
// holds. What becomes of damage does not: sound shards are the same under both
// policies, and those that are not are told apart by their flags.
func indexKey(c *Config, t *target) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "lsiofs index %d\nroot %q\n%q\nformat %s\n",
		imageVersion, t.root, t.text(), formatLine(c.Format)))
}

// formatLine is a format with its parameters as text.
func formatLine(f spec.Format) string {
	f = filledIn(f)
	switch {
	case f.Name == "fixed":
	case len(f.Arrays) > 0:
		return fmt.Sprintf("npy %q", f.Arrays)
	case f.Lc0Check:
		return f.Name + " check"
	default:
		return f.Name
	}
	return fmt.Sprintf("fixed %d %d %d %s", f.RecordBytes, f.StrideBytes, f.HeaderBytes, f.Remainder)
}

func (s *store) path(suffix string) string { return filepath.Join(s.dir, s.name+"."+suffix) }

// load maps the sealed index and checks all of it. An index that is not whole
// is as good as none; that it was there is logged.
func (s *store) load() (*image, *mapping) {
	if s.dir == "" {
		return nil, nil
	}
	path := s.path("index")
	f, err := s.openStored(path)
	if err == nil {
		defer f.Close()
		var m *mapping
		if m, err = s.mapWhole(f, false); err == nil {
			var i *image
			if i, err = openImage(m.data, s.key); err == nil {
				return i, m
			}
			_ = m.Close()
		}
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		s.log.Warn("stored index can't be used and is built again", "index", path, "reason", err)
	}
	return nil, nil
}

// create makes a new file that is locked by this process.
func (s *store) create(suffix string) (*os.File, error) {
	if s.dir == "" {
		return nil, errNoDir
	}
	for range 16 {
		path := s.path(strings.ToLower(rand.Text()[:12]) + "." + suffix)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between the two calls another process may take the file for one of a
		// dead process, lock it and remove it: then another name is tried.
		// Where the file system has no locks, nobody can take it either.
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && stillNamed(f) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("%s: files are removed as fast as they are made", s.dir)
}

// stillNamed says whether an open file has a name left.
func stillNamed(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// files are the paths of the index directory's files whose names begin and end so.
func (s *store) files(prefix, ending string) (paths []string) {
	if s.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), ending) && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(s.dir, e.Name()))
		}
	}
	return paths
}

// abandoned opens and locks the dataset's files with an ending that no living
// process holds. The caller closes them.
func (s *store) abandoned(ending string) []*os.File {
	var list []*os.File
	for _, path := range s.files(s.name+".", ending) {
		f, err := s.openStored(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !stillNamed(f) {
			_ = f.Close()
			continue
		}
		list = append(list, f)
	}
	return list
}

// publish gives a finished temporary file its name: synced, renamed, and the
// directory synced.
func (s *store) publish(f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.path(name)); err != nil {
		return err
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// clean removes the dataset's files with these endings that dead processes left.
func (s *store) clean(endings ...string) {
	for _, ending := range endings {
		for _, f := range s.abandoned(ending) {
			_ = os.Remove(f.Name())
			_ = f.Close()
		}
	}
}
