package profile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Found is the profile that mounts of a path use, and its origin.
type Found struct {
	Profile Profile `json:"profile"`
	Place   Place   `json:"place"`
	File    string  `json:"file,omitempty"` // the file with the profile; "" for defaults
	// Problem is why a stored file is not used: it is damaged, has another version, or is for
	// another file system.
	Problem error  `json:"-"`
	Cells   []Cell `json:"measured,omitempty"`
}

// Dir returns the directory where profiles are stored, which also holds indexes without a place of
// their own.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for storage profiles: %w", err)
	}
	return filepath.Join(cache, "lsiofs"), nil
}

const (
	filePrefix = "storage-"
	fileSuffix = ".json"
)

// fileName returns the file name for an identity.
func fileName(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return fmt.Sprintf("%s%x%s", filePrefix, sum[:12], fileSuffix)
}

// Find is FindIn for the user's directory. If the user has none, it returns defaults.
func Find(path string) Found {
	dir, err := Dir()
	if err != nil {
		dir = ""
	}
	return FindIn(dir, path)
}

// FindIn returns the profile of the file system of path: the one stored in dir, or the defaults of
// its kind. It never fails: an unusable file is reported in Problem, and a path that can't be
// examined counts as unknown storage.
func FindIn(dir, path string) Found {
	place, err := Look(path)
	if err != nil {
		return Found{Profile: Defaults(KindUnknown), Place: Place{Kind: KindUnknown}, Problem: err}
	}
	return findAt(dir, place)
}

func load(file string, place Place) (Stored, error) {
	text, err := readBounded(file)
	if err != nil {
		return Stored{}, err
	}
	s, err := Parse(text)
	switch {
	case err != nil:
		return Stored{}, err
	case s.Place.Identity != place.Identity:
		return Stored{}, fmt.Errorf("it is for the file system %q, not %q", s.Place.Identity, place.Identity)
	case s.Place.Kind != place.Kind:
		return Stored{}, fmt.Errorf("it was measured on %s, and the file system lies on %s now", s.Place.Kind, place.Kind)
	}
	return s, nil
}

func readBounded(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxStoredBytes+1))
}

// Listed is the file of a stored profile.
type Listed struct {
	File    string
	Stored  Stored
	Problem error // why it can't be used; Stored is then empty
}

// List returns the profiles stored in dir, at most most of them.
func List(dir string, most int) []Listed {
	files, _ := filepath.Glob(filepath.Join(dir, filePrefix+"*"+fileSuffix))
	var list []Listed
	for _, file := range files[:min(len(files), most)] {
		l := Listed{File: file}
		text, err := readBounded(file)
		if err == nil {
			l.Stored, err = Parse(text)
		}
		if err == nil && filepath.Base(file) != fileName(l.Stored.Place.Identity) {
			l.Stored, err = Stored{}, errors.New("its name is that of another file system")
		}
		l.Problem = err
		list = append(list, l)
	}
	return list
}

// Save stores a measured profile in dir, which it creates if necessary. It replaces the profile
// stored for the same file system. The file is written atomically, and readable only by its owner.
func Save(dir string, s Stored) (file string, err error) {
	if s.Place.Identity == "" {
		return "", errors.New("storage profile: nothing tells this file system from others, so there is no name to store it under")
	}
	text, err := s.marshal()
	if err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	file = filepath.Join(dir, fileName(s.Place.Identity))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	if err := replace(dir, file, text); err != nil {
		return "", fmt.Errorf("storage profile: %w", err)
	}
	return file, nil
}

// replace writes a file (0600, like os.CreateTemp) and renames it to file.
func replace(dir, file string, text []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+filePrefix+"*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// Cell is one measurement.
type Cell struct {
	ReadBytes      int64   `json:"read_bytes"`
	Depth          int     `json:"depth"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Stored is the contents of a profile's file: the profile, its file system, and the measurements.
type Stored struct {
	Version int     `json:"version"`
	Place   Place   `json:"place"`
	Profile Profile `json:"profile"`
	Cells   []Cell  `json:"measured"`
}

const (
	storedVersion = 1
	// maxStoredBytes and maxCells are several times what tune writes.
	maxStoredBytes = 256 << 10
	maxCells       = 1024
)

// Parse parses a profile's file. Anything but a complete profile of this version is an error.
// Fields of Profile.Pass and Profile.Ahead may be missing, as in files of earlier versions; they
// get the default of the kind.
func Parse(text []byte) (Stored, error) {
	var s Stored
	if len(text) > maxStoredBytes {
		return s, fmt.Errorf("it has %d bytes, more than the %d of any profile", len(text), maxStoredBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Stored{}, fmt.Errorf("it is not a profile: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Stored{}, errors.New("it is not a profile: text follows it")
	}
	if s.Profile != (Profile{}) {
		s.Profile = s.Profile.Or()
	}
	if err := s.validate(); err != nil {
		return Stored{}, err
	}
	return s, nil
}

func (s *Stored) validate() error {
	if s.Version != storedVersion {
		return fmt.Errorf("its version (%d) is not %d", s.Version, storedVersion)
	}
	if err := s.Profile.Validate(); err != nil {
		return err
	}
	switch {
	case s.Profile.Tuned.IsZero():
		return errors.New("it has no time of measurement")
	case s.Place.Identity == "":
		return errors.New("it names no file system")
	case s.Place.Kind != s.Profile.Kind:
		return fmt.Errorf("it is for %s and for %s", s.Place.Kind, s.Profile.Kind)
	case len(s.Cells) > maxCells:
		return fmt.Errorf("it has %d measurements, more than %d", len(s.Cells), maxCells)
	}
	return nil
}

// marshal returns the file's text. Optional fields with default values are left out: the next
// program may have better defaults, and an earlier one does not know the fields.
func (s *Stored) marshal() ([]byte, error) {
	s.Version = storedVersion
	whole := *s
	whole.Profile = s.Profile.Or()
	if err := whole.validate(); err != nil {
		return nil, err
	}
	whole.Profile = whole.Profile.without()
	text, err := json.MarshalIndent(whole, "", "  ")
	if err == nil && len(text) >= maxStoredBytes {
		err = fmt.Errorf("the profile has %d bytes, more than %d", len(text), maxStoredBytes)
	}
	return append(text, '\n'), err
}

// identity returns a name for a file system that stays the same after a reboot. The number of its
// device (st_dev) does not: it is assigned at each boot. The first that applies:
//
//   - "memory": all of it is the same storage;
//   - the file system's UUID, from the file system itself (FS_IOC_GETFSUUID, Linux 6.9), or from
//     udev's links to its device;
//   - the fsid from statfs, for the types that make it from their UUID;
//   - type and source of the mount: a server and its export, or, if nothing else is known, a
//     device's name. That name may later belong to another device, whose kind then differs, or
//     which the profile fits as well as any of its kind.
//
// A copy of a file system has the UUID of the original. Find compares the kinds.
func (m machine) identity(path string, p Place, mount mount, fs *unix.Statfs_t, major, minor uint32, block bool) string {
	if p.Kind == KindMemory && !block {
		return "memory"
	}
	if p.Kind != KindNetwork {
		if uuid := askUUID(path); uuid != "" {
			return "uuid " + uuid
		}
		if block {
			if uuid := m.linkedUUID(major, minor); uuid != "" {
				return "uuid " + uuid
			}
		}
		if fsid := uint64(uint32(fs.Fsid.Val[0]))<<32 | uint64(uint32(fs.Fsid.Val[1])); fsid != 0 && slices.Contains(fsidOfUUID, p.FileSystem) {
			return fmt.Sprintf("fsid %s %016x", p.FileSystem, fsid)
		}
	}
	if mount.source == "" || mount.source == "none" {
		return ""
	}
	return fmt.Sprintf("mount %s %s", p.FileSystem, mount.source)
}

// fsidOfUUID are types of file systems whose fsid is made from their UUID. That of XFS is made from
// the device's number, and NFS has none.
var fsidOfUUID = []string{"ext2", "ext3", "ext4", "btrfs", "f2fs", "zfs"}

// askUUID asks the file system, and returns "" if it does not answer.
func askUUID(path string) string {
	const getFSUUID = 0x80111500 // _IOR(0x15, 0, struct fsuuid2)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	var answer struct {
		size uint8
		uuid [16]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getFSUUID, uintptr(unsafe.Pointer(&answer)))
	n := int(answer.size)
	if errno != 0 || n == 0 || n > len(answer.uuid) || answer.uuid == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(answer.uuid[:n])
}

// linkedUUID returns the name of udev's link to a block device.
func (m machine) linkedUUID(major, minor uint32) string {
	entries, _ := os.ReadDir(m.byUUID)
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(m.byUUID, e.Name()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue
		}
		if unix.Major(st.Rdev) == major && unix.Minor(st.Rdev) == minor {
			return e.Name()
		}
	}
	return ""
}
