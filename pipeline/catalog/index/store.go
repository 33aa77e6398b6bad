package index

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

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
	return nil, fmt.Errorf("%s: another process keeps removing new files", s.dir)
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

// Stored files are trusted: a forged index with valid checksums yields other records, and
// truncating one while it is mapped kills its reader. So a file is used only if this user, root or
// the index directory's owner has written it, nobody else may write to it, and it is not a symbolic
// link. The directory's owner is trusted because some file systems show one owner for all files,
// whoever creates them.

// openStored opens a file of the index directory. It never blocks, even if it is not a regular
// file.
func (s *Store) openStored(path string) (*os.File, error) { return s.openAs(path, os.O_RDONLY) }

// openToLock is openStored, but for writing if possible, since NFS grants exclusive locks only to
// writers. It is not possible for files of other users or on a read-only file system.
func (s *Store) openToLock(path string) (*os.File, error) {
	if f, err := s.openAs(path, os.O_RDWR); err == nil {
		return f, nil
	}
	return s.openStored(path)
}

func (s *Store) openAs(path string, mode int) (*os.File, error) {
	f, err := os.OpenFile(path, mode|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = s.trusted.Believable(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Trusted are the users whose files in a directory are used.
type Trusted []uint32

// TrustIn returns the users trusted in a directory.
func TrustIn(dir string) (Trusted, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	return Trusted{uint32(os.Geteuid()), 0, ownerOf(info)}, nil
}

// Believable returns why a file of the directory is not used, nil if it is: it must be a regular
// file that belongs to one of t and to which nobody else may write.
func (t Trusted) Believable(info iofs.FileInfo) error {
	switch owner := ownerOf(info); {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is not a regular file")
	case !slices.Contains(t, owner):
		return fmt.Errorf("it belongs to user %d, not to you, to root or to the owner of its directory", owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users may write to it (mode %04o): run chmod go-w", info.Mode().Perm())
	}
	return nil
}

func ownerOf(info iofs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// ownDirName is the index directory inside a dataset's directory. heldDirName is inside ownDirName:
// it has hard links to shards, which a mount creates by itself.
const (
	ownDirName  = ".lsiofs"
	heldDirName = "hold"
)

// besideDataset returns the index directory inside a dataset's directory, "" if there is none. If
// it was created by somebody who does not own the dataset, that is an error. A directory that
// contains only held shards was not made for an index and does not count: otherwise the first mount
// that holds shards would move the index.
func besideDataset(root string) (string, error) {
	dir := filepath.Join(root, ownDirName)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", nil
	}
	if holdsShardsOnly(dir) {
		return "", nil
	}
	itself, err := os.Lstat(dir) // a link counts as its own owner's
	if err != nil {
		return "", err
	}
	above, err := os.Stat(root)
	if err != nil {
		return "", err
	}
	if owner := ownerOf(itself); !slices.Contains([]uint32{uint32(os.Geteuid()), 0, ownerOf(above)}, owner) {
		return "", fmt.Errorf("%s belongs to user %d, not to you, to root or to the owner of the dataset", dir, owner)
	}
	return dir, nil
}

func holdsShardsOnly(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(2)
	return len(names) == 1 && names[0] == heldDirName
}

// DirectoryFor returns the absolute path of the directory where a dataset's index is stored:
// indexDir if it is not empty, else the directory inside the dataset's, else lsiofs's directory in
// the user's cache directory. root is the dataset's directory, "" if the dataset is only a part of
// one. refused is the reason why the directory inside the dataset's is not used.
func DirectoryFor(indexDir, root string) (dir string, refused, err error) {
	if indexDir != "" {
		dir, err = filepath.Abs(indexDir)
		return dir, nil, err
	}
	if root != "" {
		if dir, refused = besideDataset(root); dir != "" {
			return dir, nil, nil
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", refused, fmt.Errorf("%w: choose a directory with --index-dir", err)
	}
	return filepath.Join(cache, "lsiofs"), refused, nil
}

// SaveBeside stores a file next to the index, as the newest, and removes all but the newest kept
// files with the same ending (which begins with a dot). The file appears atomically, under a name
// of its own for each dataset. If the index is in memory, nothing is stored.
func (s *Store) SaveBeside(name, ending string, kept int, content []byte) error {
	if s.dir == "" {
		return nil
	}
	return s.saveBeside(name, ending, kept, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (s *Store) saveBeside(name, ending string, kept int, write func(io.Writer) error) error {
	f, err := s.create("tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if err = write(f); err == nil {
		// A file system's own timestamp may lag by some milliseconds: it may be older than that of
		// a file which was loaded just before.
		makeNewest(f)
		err = s.publish(f, name+ending)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	s.forget(ending, kept)
	return nil
}

// LoadBeside returns a file stored by SaveBeside, and marks it as the newest. A file that does not
// have size bytes is an error; a missing one is fs.ErrNotExist.
func (s *Store) LoadBeside(name, ending string, size int64) ([]byte, error) {
	if s.dir == "" {
		return nil, fmt.Errorf("%w: %w", iofs.ErrNotExist, errNoDir)
	}
	f, err := s.openStored(s.path(name + ending))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != size {
		return nil, fmt.Errorf("%s %w: it has %d bytes, not %d", f.Name(), errDamaged, info.Size(), size)
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	makeNewest(f)
	return content, nil
}

// makeNewest sets a file's time to now. Errors do not matter: the time only determines when the
// file is removed.
func makeNewest(f *os.File) {
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now)
}

// forget removes all but the newest of the dataset's files with an ending.
func (s *Store) forget(ending string, kept int) {
	for _, path := range beyondNewest(s.files(s.name+".", ending), kept) {
		_ = os.Remove(path)
	}
}

// beyondNewest returns all but the newest of some files. Files from the future were written when
// the clock was wrong: they count as the oldest, because otherwise nothing written from now on
// would be kept.
func beyondNewest(paths []string, kept int) (others []string) {
	type aged struct {
		path string
		time time.Time
	}
	var list []aged
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		a := aged{p, info.ModTime()}
		if a.time.After(time.Now()) {
			a.time = time.Time{}
		}
		list = append(list, a)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].time.After(list[j].time) })
	for _, a := range list[min(len(list), kept):] {
		others = append(others, a.path)
	}
	return others
}

const (
	// linesKept is how many fingerprints of a dataset are remembered.
	linesKept = 4
	// linesBytes bounds the lines that are read back: those of some ten million shards.
	linesBytes = 1 << 30
)

// remember stores the lines of a fingerprint for Recall. They only serve messages, so errors are
// only logged.
func (s *Store) remember(fingerprint [32]byte, lines func(io.Writer) error) {
	err := s.saveBeside(hex.EncodeToString(fingerprint[:]), ".gz", linesKept, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err == nil {
			err = lines(z)
		}
		if err == nil {
			err = z.Close()
		}
		return err
	})
	if err != nil {
		s.log.Warn("the list of shards could not be stored: a later run can't report how the dataset has changed", "dir", s.dir, "error", err)
	}
}

// Recall returns the lines of a fingerprint, of any dataset in the index directory, or nil. Lines
// that do not hash to the fingerprint are ignored.
func (s *Store) Recall(fingerprint string) []byte {
	want, err := hex.DecodeString(fingerprint)
	if err != nil || len(want) != sha256.Size || s.dir == "" {
		return nil
	}
	paths := s.files("", "."+hex.EncodeToString(want)+".gz")
	for _, p := range paths {
		if lines := s.readLines(p); lines != nil {
			if sum := sha256.Sum256(lines); bytes.Equal(sum[:], want) {
				return lines
			}
		}
	}
	return nil
}

func (s *Store) readLines(path string) []byte {
	f, err := s.openStored(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	lines, err := io.ReadAll(io.LimitReader(z, linesBytes))
	if err != nil {
		return nil
	}
	return lines
}
