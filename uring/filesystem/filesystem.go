// Package filesystem looks up the traits of a file system that matter to programs that read its
// files and rely on them being unchanged. It is one table, by the type that statfs returns.
//
//	file descriptor ──statfs──► type ──table──► Traits
//
// A file system that is not in the table is treated like one on a local disk, with permanent inode
// numbers and times. A file is judged by the file system that the file itself is on, since links
// and mounts lead to others.
package filesystem

import (
	"time"

	"golang.org/x/sys/unix"
)

// Traits are the properties of a file system. They are a plain value.
type Traits struct {
	// Remote files come from another process or another machine, which may take any time to answer,
	// or never do. The kernel caches their attributes for a while, so its own answers about a file
	// may be out of date. Cached pages may be taken away at any time.
	Remote bool
	// NewNumbers means that a file may get another inode number when the kernel has forgotten it
	// and looks it up again. It is still the same file.
	NewNumbers bool
	// NoChangeTimes means that ctime is made up, equals mtime, or is lost when the kernel forgets
	// the file.
	NoChangeTimes bool
	// Granule is the unit that all times are multiples of, if the type determines it; otherwise 0,
	// see Traits.Step.
	Granule time.Duration
	// Watched means that every change is made by this kernel, which reports it (inotify) and
	// supports leases.
	Watched bool
	// ZeroesFirst means that a truncation zeroes the rest of the file's last page before it changes
	// size and times. A read waits for the truncation, but mapped memory does not.
	ZeroesFirst bool
	// HoldsKilled means that a direct read continues when its process is killed, so that the
	// process stays until there is an answer. A read through the page cache does not.
	HoldsKilled bool
}

// table has the file systems that differ from Traits{}.
//
//	FUSE       sshfs, gcsfuse, rclone, s3fs, ntfs-3g, virtiofs, lsiofs …: most number
//	           inodes as they are looked up, and make up ctime
//	NFS, Ceph, Lustre, GPFS, BeeGFS, OrangeFS, AFS, Coda: numbers are the server's
//	SMB        with noserverino, or a server without numbers, they are the client's
//	9p         numbers depend on what the server makes of its own
//	FAT, exfat numbers are assigned when a file is looked up; FAT's mtime has steps of
//	           2 s; there is no ctime on the disk
//	vboxsf, aufs: numbers exist only in memory
var table = map[int64]Traits{
	unix.FUSE_SUPER_MAGIC: {Remote: true, NewNumbers: true, NoChangeTimes: true, HoldsKilled: true},

	unix.NFS_SUPER_MAGIC:  {Remote: true},
	unix.CEPH_SUPER_MAGIC: {Remote: true},
	lustreMagic:           {Remote: true},
	gpfsMagic:             {Remote: true},
	beegfsMagic:           {Remote: true},
	orangefsMagic:         {Remote: true},
	unix.AFS_SUPER_MAGIC:  {Remote: true},
	unix.AFS_FS_MAGIC:     {Remote: true},
	unix.CODA_SUPER_MAGIC: {Remote: true},

	unix.SMB_SUPER_MAGIC:  {Remote: true, NewNumbers: true},
	unix.SMB2_SUPER_MAGIC: {Remote: true, NewNumbers: true},
	unix.CIFS_SUPER_MAGIC: {Remote: true, NewNumbers: true},
	unix.V9FS_MAGIC:       {Remote: true, NewNumbers: true},
	vboxsfMagic:           {Remote: true, NewNumbers: true},

	unix.MSDOS_SUPER_MAGIC: {NewNumbers: true, NoChangeTimes: true, Granule: 2 * time.Second},
	exfatMagic:             {NewNumbers: true, NoChangeTimes: true},
	aufsMagic:              {NewNumbers: true},

	unix.EXT4_SUPER_MAGIC:  {Watched: true}, // also ext2 and ext3
	unix.XFS_SUPER_MAGIC:   {Watched: true, ZeroesFirst: true},
	unix.BTRFS_SUPER_MAGIC: {Watched: true},
	unix.F2FS_SUPER_MAGIC:  {Watched: true},
	unix.TMPFS_MAGIC:       {Watched: true},
}

// Types that the library has no name for.
const (
	lustreMagic   = 0x0bd00bd0
	gpfsMagic     = 0x47504653
	beegfsMagic   = 0x19830326
	orangefsMagic = 0x20030528
	vboxsfMagic   = 0x786f4256
	exfatMagic    = 0x2011bab0
	aufsMagic     = 0x61756673
)

// Of returns the traits of the file system of an open file, which may be opened with O_PATH. It may
// wait if the file is remote.
func Of(fd int) Traits {
	var st unix.Statfs_t
	for {
		switch err := unix.Fstatfs(fd, &st); err {
		case nil:
			return table[int64(uint32(st.Type))]
		case unix.EINTR:
		default:
			return Traits{}
		}
	}
}

const (
	// tick is at least the resolution of file systems whose times have fractions of a second: 10 ms
	// for a kernel with 100 ticks a second, 16 ms for a Windows server. (Since Linux 6.13, a time
	// that has been read is not used again.)
	tick = 20 * time.Millisecond
	// coarse is the resolution of times without fractions: seconds of ext4 with small inodes, 2 s
	// of FAT, including FAT on a server.
	coarse = 2 * time.Second
)

// Step returns the time span within which a file system may give the same time to successive
// changes, judged by nanos, one of its times. That is ctime, which programs can't set, or mtime if
// there is no ctime.
func (t Traits) Step(nanos int64) time.Duration {
	switch {
	case t.Granule > 0:
		return t.Granule
	case nanos%int64(time.Second) == 0:
		return coarse
	}
	return tick
}
