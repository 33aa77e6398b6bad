package filesystem

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// mount is a line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	fileSystem, source string
	options            string // of the superblock
}

// findMount returns the mount with a number, as statx returns it; the zero value if it is not
// listed.
func findMount(mountinfo string, id uint64) mount {
	for line := range strings.Lines(mountinfo) {
		number, rest, _ := strings.Cut(line, " ")
		if n, err := strconv.ParseUint(number, 10, 64); err != nil || n != id {
			continue
		}
		_, rest, ok := strings.Cut(rest, " - ")
		if f := strings.Fields(rest); ok && len(f) >= 2 {
			m := mount{fileSystem: f[0], source: UnescapeMount(f[1])}
			if len(f) > 2 {
				m.options = f[2]
			}
			return m
		}
	}
	return mount{}
}

// layers returns the directories of an overlay, the writable one first.
func (m mount) layers() []string {
	var upper, lower []string
	for option := range strings.SplitSeq(m.options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "upperdir":
			upper = append(upper, UnescapeMount(value))
		case "lowerdir", "lowerdir+":
			for dir := range strings.SplitSeq(value, ":") {
				lower = append(lower, UnescapeMount(dir))
			}
		}
	}
	var dirs []string
	for _, dir := range append(upper, lower...) {
		// A relative path was relative for the process that mounted.
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// block returns the number of a file system's block device: its own or, if that is made up (btrfs),
// that of its source.
func (m mount) block(major, minor uint32) (uint32, uint32, bool) {
	if major != 0 {
		return major, minor, true
	}
	info, err := os.Stat(m.source)
	if err != nil || !filepath.IsAbs(m.source) || info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		return 0, 0, false
	}
	var st unix.Stat_t
	if unix.Stat(m.source, &st) != nil {
		return 0, 0, false
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), true
}

// UnescapeMount undoes the kernel's octal escapes, such as \040 for a space, in
// /proc/self/mountinfo and similar files. Anything else stays as it is.
func UnescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Place is the file system of a path, and the device below it.
type Place struct {
	Kind       storage.Kind `json:"kind"`
	FileSystem string       `json:"file_system"`      // its type, such as ext4
	Device     string       `json:"device,omitempty"` // such as vda, or a network file system's source; "" if unknown
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
// determined, it is storage.KindUnknown; errors are only for paths that do not exist or can't be
// accessed.
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
	err = again(func() error { return unix.Statfs(real, &fs) })
	if err == nil {
		err = again(func() error {
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
	if p.Kind == storage.KindUnknown {
		if major, minor, block = mount.block(major, minor); block {
			p.Kind, p.Device = m.device(major, minor, layer)
		}
	}
	if p.Kind == storage.KindNetwork {
		p.Device = mount.source
	}
	p.Identity = m.identity(real, p, mount, &fs, major, minor, block)
	return p, nil
}

// AwaitAnswer waits until the file system that path is on answers, even with an error, or until ctx
// ends: as long as it does not answer, any other access to the path may hang. After first, and every
// again from then on, it calls silent with the absolute path and how long it has waited; an error of
// silent ends the wait.
func AwaitAnswer(ctx context.Context, path string, first, again time.Duration, silent func(path string, waited time.Duration) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	answered := make(chan struct{})
	go func() { // ends with the process at the latest
		var st unix.Statfs_t
		_ = unix.Statfs(path, &st)
		close(answered)
	}()
	begin := time.Now()
	next := time.NewTimer(first)
	defer next.Stop()
	for {
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-next.C:
			if err := silent(path, time.Since(begin)); err != nil {
				return err
			}
			next.Reset(again)
		}
	}
}

// networks are the types of file systems that depend on another machine, or on a program. Those of
// FUSE begin with "fuse.".
var networks = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "9p", "afs", "gpfs", "beegfs", "pvfs2", "orangefs", "glusterfs", "fuse"}

// kindOf returns the kind of storage for a type of file system, or storage.KindUnknown for types
// that are on a device.
func kindOf(fileSystem string) storage.Kind {
	switch fileSystem {
	case "tmpfs", "ramfs", "hugetlbfs":
		return storage.KindMemory
	case "virtiofs":
		return storage.KindVirtual
	}
	if strings.HasPrefix(fileSystem, "fuse.") {
		return storage.KindNetwork
	}
	for _, n := range networks {
		if fileSystem == n {
			return storage.KindNetwork
		}
	}
	return storage.KindUnknown
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

// device returns the kind and the name of a block device. Devices that consist of others (LVM,
// RAID, encryption) have the kind of the first of these.
func (m machine) device(major, minor uint32, layer int) (storage.Kind, string) {
	dir, err := filepath.EvalSymlinks(filepath.Join(m.sys, "dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return storage.KindUnknown, ""
	}
	name := filepath.Base(dir)
	return m.deviceAt(dir, layer), name
}

func (m machine) deviceAt(dir string, layer int) storage.Kind {
	if _, err := os.Stat(filepath.Join(dir, "queue")); err != nil {
		dir = filepath.Dir(dir) // the disk of a partition
	}
	if layer < mostLayers {
		parts, _ := filepath.Glob(filepath.Join(dir, "slaves", "*"))
		for _, part := range parts {
			if real, err := filepath.EvalSymlinks(part); err == nil {
				return m.deviceAt(real, layer+1)
			}
		}
		if image := attribute(dir, "loop/backing_file"); image != "" {
			if p, err := m.look(image, layer+1); err == nil {
				return p.Kind
			}
		}
	}
	return kindOfDevice(dir, attribute(dir, "device/vendor")+" "+attribute(dir, "device/model"), attribute(dir, "queue/rotational"))
}

// attribute returns the text of a sysfs file, or "" if there is none.
func attribute(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}

// Signs of an emulated disk. The rotational attribute of such a disk can't be trusted: virtio's is
// set whatever the disk is on.
var (
	virtualBuses  = []string{"/virtio", "/vbd-", "/vmbus", "/xen"}
	virtualModels = []string{"qemu", "vmware", "vbox", "msft", "virtual", "google", "persistentdisk", "amazon elastic block store", "blockvolume", "xen"}
)

// kindOfDevice determines the kind of a disk from its directory in sysfs, vendor and model, and its
// rotational attribute.
func kindOfDevice(dir, model, rotational string) storage.Kind {
	name := filepath.Base(dir)
	if strings.HasPrefix(name, "zram") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "pmem") {
		return storage.KindMemory
	}
	if strings.HasPrefix(name, "nbd") || strings.HasPrefix(name, "rbd") || strings.HasPrefix(name, "drbd") {
		return storage.KindNetwork
	}
	dir, model = strings.ToLower(dir), strings.ToLower(model)
	for _, bus := range virtualBuses {
		if strings.Contains(dir, bus) {
			return storage.KindVirtual
		}
	}
	for _, sign := range virtualModels {
		if strings.Contains(model, sign) {
			return storage.KindVirtual
		}
	}
	switch rotational {
	case "0":
		return storage.KindSSD
	case "1":
		return storage.KindDisk
	}
	return storage.KindUnknown
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
// A copy of a file system has the UUID of the original. FindProfile compares the kinds.
func (m machine) identity(path string, p Place, mount mount, fs *unix.Statfs_t, major, minor uint32, block bool) string {
	if p.Kind == storage.KindMemory && !block {
		return "memory"
	}
	if p.Kind != storage.KindNetwork {
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
