package uring

import (
	"slices"

	"golang.org/x/sys/unix"
)

// remoteMagics are the file systems whose files come from another process or
// another machine, which may take any time to answer: FUSE, NFS, SMB, 9p, Ceph, AFS,
// Lustre, GPFS, BeeGFS.
var remoteMagics = []int64{
	unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
	unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC, 0x0bd00bd0, 0x47504653, 0x19830326,
}

// Remote says whether an open file lies where a read may wait for another process
// or machine for ever. Two things follow. Its reads are made by threads: the
// kernel begins a direct read of FUSE within io_uring_enter, and waits there for
// the answer, and with it the ring; others it hands to a few threads of its own.
// And it is not to be mapped: its pages may be taken away at any time, and who
// touches one then waits, in a fault, which no signal ends and for which each
// stop of the Go scheduler waits too.
func Remote(fd int) bool { return slices.Contains(remoteMagics, magic(fd)) }

// outlivesSignals says whether a direct read of an open file goes on when the
// process is killed, which then stays until there is an answer. A read through the
// page cache of the same file does not.
func outlivesSignals(fd int) bool { return magic(fd) == unix.FUSE_SUPER_MAGIC }

// magic is the number of a file system, 0 where it is not told.
func magic(fd int) int64 {
	var st unix.Statfs_t
	for {
		switch err := unix.Fstatfs(fd, &st); err {
		case nil:
			return int64(uint32(st.Type))
		case unix.EINTR:
		default:
			return 0
		}
	}
}
