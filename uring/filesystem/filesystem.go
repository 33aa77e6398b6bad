// Package filesystem says what file systems are like, as far as those have to know
// who read their files and believe them to be unchanged. It is one table, by the
// type that statfs gives.
//
// A file system that is not in the table is taken for one on a disk of this
// machine, whose inode numbers and times last. A file is judged by the file system
// that it lies on itself: links and mounts lead to others.
package filesystem

import (
	"time"

	"golang.org/x/sys/unix"
)

// Traits are what a file system is like. They are a plain value.
type Traits struct {
	// Remote files come from another process or another machine, which may take
	// any time to answer, or never do. The kernel keeps their attributes for a
	// while, so what it says of a file by itself may be old; and their pages may be
	// taken away at any time.
	Remote bool
	// NewNumbers: a file may have another inode number when the kernel has
	// forgotten it and looks at it again. It still is the same file.
	NewNumbers bool
	// NoChangeTimes: ctime is made up, or is mtime, or does not outlast the
	// kernel's memory of a file.
	NoChangeTimes bool
	// Granule is what times are multiples of, where that is known from the type;
	// else 0, see Traits.Step.
	Granule time.Duration
	// Watched: every change is made by this kernel, which tells of it (inotify),
	// and which keeps leases.
	Watched bool
	// ZeroesFirst: a truncation zeroes the rest of the file's last page before it
	// changes size and times. A read waits for it; memory that is mapped does not.
	ZeroesFirst bool
	// HoldsKilled: a direct read goes on when its process is killed, which then
	// stays until there is an answer. A read through the page cache does not.
	HoldsKilled bool
}

// table has the file systems that differ from Traits{}.
//
//	FUSE       sshfs, gcsfuse, rclone, s3fs, ntfs-3g, virtiofs, lsiofs …: most number
//	           inodes as they are looked up, and make up ctime
//	NFS, Ceph, Lustre, GPFS, BeeGFS, OrangeFS, AFS, Coda: numbers are the server's
//	SMB        with noserverino, or a server without numbers, they are the client's
//	9p         numbers are whatever a server makes of its own
//	FAT, exfat numbers are made when a file is looked up; FAT's mtime has steps of
//	           2 s; there is no ctime on the disk
//	vboxsf, aufs: numbers of memory only
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

	unix.EXT4_SUPER_MAGIC:  {Watched: true}, // ext2 and ext3 too
	unix.XFS_SUPER_MAGIC:   {Watched: true, ZeroesFirst: true},
	unix.BTRFS_SUPER_MAGIC: {Watched: true},
	unix.F2FS_SUPER_MAGIC:  {Watched: true},
	unix.TMPFS_MAGIC:       {Watched: true},
}

// Those that the library has no name for.
const (
	lustreMagic   = 0x0bd00bd0
	gpfsMagic     = 0x47504653
	beegfsMagic   = 0x19830326
	orangefsMagic = 0x20030528
	vboxsfMagic   = 0x786f4256
	exfatMagic    = 0x2011bab0
	aufsMagic     = 0x61756673
)

// Of gives the traits of the file system that an open file lies on; O_PATH will do.
// It may wait where that is remote.
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
	// tick is no less than what clocks of file systems go by that give fractions of
	// a second: 10 ms of a kernel with 100 ticks a second, 16 ms of a server with
	// Windows. (Since Linux 6.13 a time that somebody has seen is not given again.)
	tick = 20 * time.Millisecond
	// coarse is what times go by that have no fractions: seconds of ext4 with small
	// inodes, 2 s of FAT, also behind a server.
	coarse = 2 * time.Second
)

// Step is for how long a file system may give the same time to changes that come
// one after the other, as one of its times shows (nanoseconds): of ctime, which
// nobody sets, or of mtime where there is none.
func (t Traits) Step(nanos int64) time.Duration {
	switch {
	case t.Granule > 0:
		return t.Granule
	case nanos%int64(time.Second) == 0:
		return coarse
	}
	return tick
}
