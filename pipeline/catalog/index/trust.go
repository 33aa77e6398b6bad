package index

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

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
