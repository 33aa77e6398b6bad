package filesystem

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// fakeDevice creates a block device in a tree like sysfs: its directory, its attributes, and the
// link from its number.
func fakeDevice(t *testing.T, sys, number, dir string, attributes map[string]string) {
	t.Helper()
	full := filepath.Join(sys, "devices", dir)
	require.NoError(t, os.MkdirAll(full, 0o755))
	for name, text := range attributes {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(full, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(full, name), []byte(text+"\n"), 0o644))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(sys, "dev/block"), 0o755))
	require.NoError(t, os.Symlink(full, filepath.Join(sys, "dev/block", number)))
}

func TestDeviceKinds(t *testing.T) {
	ssd, disk := map[string]string{"queue/rotational": "0"}, map[string]string{"queue/rotational": "1"}
	model := func(vendor, model, rotational string) map[string]string {
		return map[string]string{"queue/rotational": rotational, "device/vendor": vendor, "device/model": model}
	}
	for _, c := range []struct {
		name, dir  string
		attributes map[string]string
		kind       storage.Kind
	}{
		{"an NVMe disk", "pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0n1", model("", "Samsung SSD 990 PRO 2TB", "0"), storage.KindSSD},
		{"a disk that rotates", "pci0000:00/ata1/host0/block/sda", model("ATA", "WDC WD40EFRX-68N", "1"), storage.KindDisk},
		{"a SATA SSD", "pci0000:00/ata2/host1/block/sdb", model("ATA", "CT1000MX500SSD1", "0"), storage.KindSSD},
		{"virtio, which says that it rotates", "pci0000:00/0000:00:02.0/virtio1/block/vda", disk, storage.KindVirtual},
		{"Xen", "vbd-51712/block/xvda", ssd, storage.KindVirtual},
		{"Hyper-V", "LNXSYSTM:00/VMBUS:00/host0/block/sda", model("Msft", "Virtual Disk", "1"), storage.KindVirtual},
		{"VMware", "pci0000:00/host2/block/sda", model("VMware", "Virtual disk", "1"), storage.KindVirtual},
		{"QEMU's IDE", "pci0000:00/ata1/block/sda", model("ATA", "QEMU HARDDISK", "1"), storage.KindVirtual},
		{"Google's", "pci0000:00/block/sda", model("Google", "PersistentDisk", "1"), storage.KindVirtual},
		{"Amazon's network disk", "pci0000:00/nvme/nvme1/nvme1n1", model("", "Amazon Elastic Block Store", "0"), storage.KindVirtual},
		{"Amazon's local disk", "pci0000:00/nvme/nvme2/nvme2n1", model("", "Amazon EC2 NVMe Instance Storage", "0"), storage.KindSSD},
		{"compressed memory", "virtual/block/zram0", ssd, storage.KindMemory},
		{"a network block device", "virtual/block/nbd0", disk, storage.KindNetwork},
		{"one that says nothing", "virtual/block/x", map[string]string{"queue/scheduler": "none"}, storage.KindUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{sys: t.TempDir()}
			fakeDevice(t, m.sys, "8:16", c.dir, c.attributes)
			kind, name := m.device(8, 16, 0)
			require.Equal(t, c.kind, kind)
			require.Equal(t, filepath.Base(c.dir), name)
		})
	}
}

func TestCompositeDevicesHaveKindOfTheirParts(t *testing.T) {
	m := machine{sys: t.TempDir()}
	fakeDevice(t, m.sys, "8:0", "ata1/block/sda", map[string]string{"queue/rotational": "1"})
	fakeDevice(t, m.sys, "8:1", "ata1/block/sda/sda1", map[string]string{"partition": "1"})
	dm := filepath.Join(m.sys, "devices/virtual/block/dm-0")
	fakeDevice(t, m.sys, "253:0", "virtual/block/dm-0", map[string]string{"queue/rotational": "0"})
	require.NoError(t, os.Mkdir(filepath.Join(dm, "slaves"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(m.sys, "devices/ata1/block/sda/sda1"), filepath.Join(dm, "slaves/sda1")))
	kind, name := m.device(8, 1, 0)
	require.Equal(t, storage.KindDisk, kind, "a partition")
	require.Equal(t, "sda1", name)
	kind, name = m.device(253, 0, 0)
	require.Equal(t, storage.KindDisk, kind, "a volume on it")
	require.Equal(t, "dm-0", name)
	kind, name = m.device(1, 2, 0)
	require.Equal(t, storage.KindUnknown, kind, "no such device")
	require.Empty(t, name)

	// A loop device on an image on itself, which no kernel would have.
	fakeDevice(t, m.sys, "253:1", "virtual/block/dm-1", map[string]string{"queue/rotational": "0"})
	dm = filepath.Join(m.sys, "devices/virtual/block/dm-1")
	require.NoError(t, os.Mkdir(filepath.Join(dm, "slaves"), 0o755))
	require.NoError(t, os.Symlink(dm, filepath.Join(dm, "slaves/dm-1")))
	kind, _ = m.device(253, 1, 0)
	require.Equal(t, storage.KindSSD, kind, "looking through ends")
}

func TestFileSystemKinds(t *testing.T) {
	for kind, types := range map[storage.Kind]string{
		storage.KindMemory:  "tmpfs ramfs hugetlbfs",
		storage.KindNetwork: "nfs nfs4 cifs smb3 lustre ceph 9p fuse fuse.sshfs fuse.glusterfs gpfs beegfs",
		storage.KindVirtual: "virtiofs",
		storage.KindUnknown: "ext4 xfs btrfs f2fs zfs overlay fuseblk squashfs type-1234",
	} {
		for name := range strings.FieldsSeq(types) {
			require.Equal(t, kind, kindOf(name), name)
		}
	}
	for magic, name := range map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "nfs", 0xff534d42: "cifs",
		0x0bd00bd0: "lustre", unix.CEPH_SUPER_MAGIC: "ceph", unix.FUSE_SUPER_MAGIC: "fuse", unix.OVERLAYFS_SUPER_MAGIC: "overlay", 0x1234: "type-1234",
	} {
		require.Equal(t, name, typeName(magic))
		require.Equal(t, name, typeName(int64(int32(uint32(magic)))), "sign-extended, as on 32 bits")
	}
}

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
31 27 0:50 / /data rw - nfs4 server:/export/my\040data rw,vers=4.2
40 27 0:60 / /c rw - overlay overlay rw,lowerdir=/l1:/with\040space:relative,upperdir=/up,workdir=/work
41 27 0:61 / /d rw - overlay overlay rw,lowerdir+=/a,lowerdir+=/b
cut off
99 27
`

func TestMountsAreFoundByNumber(t *testing.T) {
	require.Equal(t, mount{"ext4", "/dev/vda", "rw,discard"}, findMount(mountinfo, 27))
	require.Equal(t, mount{"nfs4", "server:/export/my data", "rw,vers=4.2"}, findMount(mountinfo, 31))
	require.Equal(t, []string{"/up", "/l1", "/with space"}, findMount(mountinfo, 40).layers())
	require.Equal(t, []string{"/a", "/b"}, findMount(mountinfo, 41).layers())
	for _, id := range []uint64{0, 2, 99, 1 << 60} {
		require.Equal(t, mount{}, findMount(mountinfo, id))
	}
	require.Empty(t, mount{}.layers())
}

// lookedAt returns a machine whose mountinfo has one line, about the mount of path.
func lookedAt(t *testing.T, path, line string) machine {
	var st unix.Statx_t
	require.NoError(t, unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &st))
	m := machine{sys: t.TempDir(), mountinfo: filepath.Join(t.TempDir(), "mountinfo"), byUUID: t.TempDir()}
	require.NoError(t, os.WriteFile(m.mountinfo, fmt.Appendf(nil, "%d 1 0:9 / / rw - %s\n", st.Mnt_id, line), 0o644))
	return m
}

func TestOverlaysAreResolved(t *testing.T) {
	dir := t.TempDir()
	m := lookedAt(t, dir, "overlay overlay rw,upperdir=/does/not/exist,lowerdir=/proc:/sys")
	under, err := m.look("/proc", 0)
	require.NoError(t, err)
	require.Equal(t, "type-9fa0", under.FileSystem)
	p, err := m.look(dir, 0)
	require.NoError(t, err)
	require.Equal(t, under, p)

	m = lookedAt(t, dir, "overlay overlay rw,upperdir="+dir)
	p, err = m.look(dir, 0)
	require.NoError(t, err)
	require.Equal(t, "overlay", p.FileSystem, "one on itself ends somewhere")
	m = lookedAt(t, dir, "overlay overlay rw,upperdir=/does/not/exist")
	p, err = m.look(dir, 0)
	require.NoError(t, err)
	require.Equal(t, "overlay", p.FileSystem, "a layer that can't be seen, as in a container")
}

func TestNetworkFileSystemsAreIdentifiedByTheirSource(t *testing.T) {
	dir := t.TempDir()
	m := lookedAt(t, dir, "nfs4 server:/export rw")
	p, err := m.look(dir, 0)
	require.NoError(t, err)
	require.Equal(t, Place{storage.KindNetwork, "nfs4", "server:/export", "mount nfs4 server:/export"}, p)
}

func TestProbeOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	p, err := Look(dir)
	require.NoError(t, err)
	require.Contains(t, storage.Kinds, p.Kind)
	require.NotEmpty(t, p.FileSystem)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	through, err := Look(link)
	require.NoError(t, err)
	require.Equal(t, p, through)
	_, err = Look(filepath.Join(dir, "missing"))
	require.ErrorContains(t, err, "storage of "+dir)

	// Without mountinfo and sysfs only the type from statfs is known.
	blind, err := machine{sys: "/none", mountinfo: "/none", byUUID: "/none"}.look(dir, 0)
	require.NoError(t, err)
	require.NotEmpty(t, blind.FileSystem)
}

func TestIdentities(t *testing.T) {
	m := machine{byUUID: t.TempDir()}
	var fs unix.Statfs_t
	fs.Fsid.Val = [2]int32{-2, 1}
	for _, c := range []struct {
		name  string
		place Place
		mount mount
		want  string
	}{
		{"memory", Place{Kind: storage.KindMemory, FileSystem: "tmpfs"}, mount{source: "tmpfs"}, "memory"},
		{"a server", Place{Kind: storage.KindNetwork, FileSystem: "nfs4"}, mount{source: "srv:/x"}, "mount nfs4 srv:/x"},
		{"an fsid that is a UUID", Place{Kind: storage.KindSSD, FileSystem: "ext4"}, mount{source: "/dev/sda1"}, "fsid ext4 fffffffe00000001"},
		{"an fsid that is a device's number", Place{Kind: storage.KindSSD, FileSystem: "xfs"}, mount{source: "/dev/sda1"}, "mount xfs /dev/sda1"},
		{"nothing", Place{Kind: storage.KindUnknown, FileSystem: "odd"}, mount{}, ""},
		{"no source", Place{Kind: storage.KindNetwork, FileSystem: "fuse.x"}, mount{source: "none"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// /proc has no UUID.
			require.Equal(t, c.want, m.identity("/proc", c.place, c.mount, &fs, 8, 1, c.place.Kind == storage.KindSSD))
		})
	}
	require.Empty(t, askUUID("/does/not/exist"))
}
