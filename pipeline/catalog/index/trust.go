package index

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// What is stored is believed: a whole index that somebody else has made up gives
// other records, and one that is cut while it is mapped kills its reader. So
// files count only where this user, root or the index directory's owner has
// written them, nobody else may write to them, and no link stands in their place.
// The directory's owner is among them because some file systems show one owner
// for all files, whoever makes them.

// openStored opens a file of the index directory, never waiting for one that is
// no file.
func (s *Store) openStored(path string) (*os.File, error) { return s.openAs(path, os.O_RDONLY) }

// openToLock is openStored, for writing where that can be, which it can't of others' files or on a
// read-only file system: NFS gives exclusive locks to writers alone.
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

// Trusted are the users whose files count in a directory.
type Trusted []uint32

// TrustIn are those of a directory.
func TrustIn(dir string) (Trusted, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	return Trusted{uint32(os.Geteuid()), 0, ownerOf(info)}, nil
}

// Believable says why a file of the directory does not count, nil where it does: it has
// to be a regular file of one of t to which nobody else may write.
func (t Trusted) Believable(info fs.FileInfo) error {
	switch owner := ownerOf(info); {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is not a regular file")
	case !slices.Contains(t, owner):
		return fmt.Errorf("it belongs to user %d, not to you, root or the owner of its directory", owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to it (mode %04o): chmod go-w takes that right away", info.Mode().Perm())
	}
	return nil
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// ownDirName is the directory of an index that lies with its dataset. heldDirName lies in it:
// links to shards, which a mount makes by itself.
const (
	ownDirName  = ".lsiofs"
	heldDirName = "hold"
)

// besideDataset is the index directory that lies with a dataset, "" where there
// is none. One that was put there by somebody who does not own the dataset is an
// error. One that has nothing but held shards was not made for an index: it does not count,
// or else the first mount that holds some would move the index.
func besideDataset(root string) (string, error) {
	dir := filepath.Join(root, ownDirName)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", nil
	}
	if holdsShardsOnly(dir) {
		return "", nil
	}
	itself, err := os.Lstat(dir) // a link counts as whose it is
	if err != nil {
		return "", err
	}
	above, err := os.Stat(root)
	if err != nil {
		return "", err
	}
	if owner := ownerOf(itself); !slices.Contains([]uint32{uint32(os.Geteuid()), 0, ownerOf(above)}, owner) {
		return "", fmt.Errorf("%s belongs to user %d, not to you, root or the owner of the dataset", dir, owner)
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

// DirectoryFor is where the index of a dataset is stored, absolute: indexDir
// where that is not empty, else the directory that lies with the dataset, else
// the user's own. root is the dataset's directory, "" where it is not all of one.
// refused is why the directory that lies with the dataset is not used.
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
