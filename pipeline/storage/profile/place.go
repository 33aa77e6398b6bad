package profile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is the file system of a path, and the device below it.
type Place struct {
	Kind       Kind   `json:"kind"`
	FileSystem string `json:"file_system"`      // its type, such as ext4
	Device     string `json:"device,omitempty"` // such as vda, or a network file system's source; "" if unknown
	// Identity distinguishes the file system from every other, across boots if possible;
	// "" if nothing does. See identity.
	Identity string `json:"identity"`
}

// machine is where the kernel describes mounts and devices.
type machine struct {
	sys       string // directory of sysfs
	mountinfo string // the file
	byUUID    string // directory of links to block devices
}

var thisMachine = machine{sys: "/sys", mountinfo: "/proc/self/mountinfo", byUUID: "/dev/disk/by-uuid"}

// mostLayers bounds overlays on overlays and images in images.
const mostLayers = 8

// Look returns the storage that a path is on. For an overlay it examines the writable layer, and
// for a loop device the file system of its image, if these are visible. If the kind can't be
// determined, it is KindUnknown; errors are only for paths that do not exist or can't be accessed.
func Look(path string) (Place, error) {
	return thisMachine.look(path, 0)
}

func (m machine) look(path string, layer int) (Place, error) {
	real, err := filepath.Abs(path)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return Place{}, fmt.Errorf("storage of %s: %w", path, err)
	}
	var fs unix.Statfs_t
	var st unix.Statx_t
	err = retry(func() error { return unix.Statfs(real, &fs) })
	if err == nil {
		err = retry(func() error {
			return unix.Statx(unix.AT_FDCWD, real, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st)
		})
	}
	if err != nil {
		return Place{}, fmt.Errorf("storage of %s: %w", path, err)
	}
	text, _ := os.ReadFile(m.mountinfo) // if it can't be read: the types from statfs must do
	mount := findMount(string(text), st.Mnt_id)
	if mount.fileSystem == "" {
		mount.fileSystem = typeName(int64(fs.Type))
	}
	if mount.fileSystem == "overlay" && layer < mostLayers {
		for _, dir := range mount.layers() {
			if p, err := m.look(dir, layer+1); err == nil {
				return p, nil
			}
		}
	}
	p := Place{Kind: kindOf(mount.fileSystem), FileSystem: mount.fileSystem}
	major, minor, block := st.Dev_major, st.Dev_minor, false
	if p.Kind == KindUnknown {
		if major, minor, block = mount.block(major, minor); block {
			p.Kind, p.Device = m.device(major, minor, layer)
		}
	}
	if p.Kind == KindNetwork {
		p.Device = mount.source
	}
	p.Identity = m.identity(real, p, mount, &fs, major, minor, block)
	return p, nil
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// networks are the types of file systems that depend on another machine, or on a program. Those of
// FUSE begin with "fuse.".
var networks = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "9p", "afs", "gpfs", "beegfs", "pvfs2", "orangefs", "glusterfs", "fuse"}

// kindOf returns the kind of storage for a type of file system, or KindUnknown for types that are
// on a device.
func kindOf(fileSystem string) Kind {
	switch fileSystem {
	case "tmpfs", "ramfs", "hugetlbfs":
		return KindMemory
	case "virtiofs":
		return KindVirtual
	}
	if strings.HasPrefix(fileSystem, "fuse.") {
		return KindNetwork
	}
	for _, n := range networks {
		if fileSystem == n {
			return KindNetwork
		}
	}
	return KindUnknown
}

// typeName returns the name of a type from statfs, for the types that a kind or an identity depends
// on, if mountinfo can't be read.
func typeName(magic int64) string {
	switch uint32(magic) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.F2FS_SUPER_MAGIC:
		return "f2fs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case 0xff534d42:
		return "cifs"
	case unix.SMB2_SUPER_MAGIC:
		return "smb3"
	case 0x0bd00bd0:
		return "lustre"
	case unix.CEPH_SUPER_MAGIC:
		return "ceph"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.V9FS_MAGIC:
		return "9p"
	}
	return fmt.Sprintf("type-%x", uint32(magic))
}
