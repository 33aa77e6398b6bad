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

// identity names a file system so that the name is the same after a reboot. The
// number of its device (st_dev) is not: that is given out anew each time. In
// turn:
//
//   - memory: all of it is the same storage;
//   - the file system's UUID, asked of it (FS_IOC_GETFSUUID, Linux 6.9), or by
//     udev's links to its device;
//   - the fsid of statfs, for the types that make it of their UUID;
//   - type and source of the mount: a server and its export, or, where nothing
//     else is known, a device's name. That may come to mean another device,
//     which then is of another kind, or is as well tuned as any of its kind.
//
// A copy of a file system has the UUID of the first. Find compares the kinds.
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

// fsidOfUUID are types of file systems whose fsid is made of their UUID. XFS'
// is made of the device's number, NFS has none.
var fsidOfUUID = []string{"ext2", "ext3", "ext4", "btrfs", "f2fs", "zfs"}

// askUUID asks the file system, and gives "" where it does not say.
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

// linkedUUID is the name of udev's link to a block device.
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
