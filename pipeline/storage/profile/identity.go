package profile

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
