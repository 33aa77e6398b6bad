package index

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
)

var errNoDir = errors.New("there is no index directory")

// Key identifies what an index is of: it is a hash of everything that determines the index of
// unchanged files. The handling of damage is not part of it: intact shards are the same under both
// policies, and flags mark the others.
type Key [32]byte

// KeyOf returns the key for the wanted files of a root directory in a format; all three as text.
func KeyOf(root, wanted, format string) Key {
	return sha256.Sum256(fmt.Appendf(nil, "lsiofs index %d\nroot %q\n%q\nformat %s\n", Version, root, wanted, format))
}

// Store is one dataset's view of the index directory:
//
//	<name>.index              the sealed index
//	<name>.<16 hex>.index     that of a snapshot, by its fingerprint
//	<name>.<random>.journal   finished shards of a running or interrupted build
//	<name>.<random>.tmp       a file that is being written
//	<name>.<fingerprint>.gz   the lines of a fingerprint, for Recall
//	<name>.<more>             files that others keep next to the index, see SaveBeside
//
// name is a part of the key. Journals and temporary files are locked (flock) by the process that
// writes them, which distinguishes those of dead processes from those of living ones.
//
// The zero Store has no directory: its indexes are in memory.
type Store struct {
	dir string // empty if there is none
	// trusted are the users whose files are used, see openStored.
	trusted Trusted
	key     Key
	name    string
	log     *slog.Logger
}

// OpenStore chooses the index directory (DirectoryFor) and names the dataset's files in it. It
// creates the directory; if that fails it logs the reason, and indexes are in memory.
func OpenStore(indexDir, root string, key Key, log *slog.Logger) *Store {
	s := &Store{key: key, name: hex.EncodeToString(key[:16]), log: log}
	dir, refused, err := DirectoryFor(indexDir, root)
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
		log.Warn("no index directory: the index is kept in memory and built again by the next run; name a directory with --index-dir", "error", err)
	}
	return s
}

// Dir returns the index directory, "" if there is none.
func (s *Store) Dir() string { return s.dir }

// Name returns the prefix of the names of the dataset's files: a part of its key.
func (s *Store) Name() string { return s.name }

func (s *Store) path(suffix string) string { return filepath.Join(s.dir, s.name+"."+suffix) }

// Load opens the sealed index and checks all of it. It returns nil if there is none, or if it is
// not whole, which is logged.
func (s *Store) Load() *Image {
	if s.dir == "" {
		return nil
	}
	path := s.path("index")
	i, err := s.loadFile(path)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		s.log.Warn("stored index can't be used and is built again", "index", path, "reason", err)
	}
	return i
}

func (s *Store) loadFile(path string) (*Image, error) {
	f, err := s.openStored(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := s.mapWhole(f, false)
	if err != nil {
		return nil, err
	}
	return openMapped(m, s.key)
}

// create makes a new file that is locked by this process.
func (s *Store) create(suffix string) (*os.File, error) {
	if s.dir == "" {
		return nil, errNoDir
	}
	for range 16 {
		path := s.path(strings.ToLower(rand.Text()[:12]) + "." + suffix)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		// Between the two calls another process may take the file for one of a dead process, lock
		// it and remove it: then another name is tried. If the file system has no locks, no other
		// process can lock it either.
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && stillNamed(f) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("%s: files are removed as fast as they are made", s.dir)
}

// stillNamed reports whether an open file still has a name.
func stillNamed(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// files returns the paths of the index directory's files whose names have this prefix and ending.
func (s *Store) files(prefix, ending string) (paths []string) {
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

// abandoned opens and locks the dataset's files with an ending that no living process holds. The
// caller closes them.
func (s *Store) abandoned(ending string) []*os.File {
	var list []*os.File
	for _, path := range s.files(s.name+".", ending) {
		f, err := s.openToLock(path)
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

// publish gives a finished temporary file its name: it is synced and renamed, and the directory is
// synced.
func (s *Store) publish(f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.rename(f, name); err != nil {
		return err
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// rename gives a finished temporary file its name. After a crash of the machine the file may have
// that name and be empty.
func (s *Store) rename(f *os.File, name string) error { return os.Rename(f.Name(), s.path(name)) }

// Clean removes what dead processes have left of the dataset. It may be called only when nothing is
// left to build, because it removes their journals.
func (s *Store) Clean() { s.clean(".tmp", ".journal") }

// clean removes the dataset's files with these endings that dead processes left.
func (s *Store) clean(endings ...string) {
	for _, ending := range endings {
		for _, f := range s.abandoned(ending) {
			_ = os.Remove(f.Name())
			_ = f.Close()
		}
	}
}
