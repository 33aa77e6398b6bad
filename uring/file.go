package uring

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Direct selects which reads of a File bypass the page cache (O_DIRECT).
type Direct uint8

const (
	// DirectNever reads through the page cache.
	DirectNever Direct = iota
	// DirectCold bypasses the page cache for reads of 128 KiB and more that are not entirely in it,
	// except for files on FUSE. It is for data that does not fit into memory anyway: such reads
	// took a fifth of the CPU at twice the speed. But they leave nothing in the page cache for the
	// next time.
	DirectCold
	// DirectAlways bypasses it for every read.
	DirectAlways
)

const (
	// minDirectBytes is the smallest read for which DirectCold bypasses the page cache: for smaller
	// ones the kernel's read-ahead is worth more.
	minDirectBytes = 128 << 10

	// minStraightBytes is the size from which on a second read costs less than a copy: about 10 us
	// of a processor.
	minStraightBytes = 128 << 10

	// unknownAlignment is used if the kernel does not report alignments (before 6.1): no file
	// system or disk in use needs more.
	unknownAlignment = 4096
)

// File is an open regular file, and what an engine has found out about it. Requests of one or
// several engines may share it. Its methods may be called concurrently, except Close.
//
// Data of a File in the page cache is read without the kernel's queues (RWF_NOWAIT), several times
// faster than through a ring. If a file system lacks RWF_NOWAIT or O_DIRECT, the first read
// discovers that, and its files are read as plain descriptors.
type File struct {
	fd     int
	policy Direct
	remote bool         // see Remote
	holds  bool         // a direct read keeps the process alive after it is killed
	verify func() error // nil without VerifyWith

	waits   atomic.Bool   // RWF_NOWAIT is refused
	refused atomic.Uint32 // a refusal: why direct reads are no longer tried
	direct  atomic.Pointer[directFile]
	opening sync.Mutex // held while setting direct
}

// refusal is why a File is not read directly.
type refusal uint32

const (
	notRefused refusal = iota
	refusedBySystem
	refusedAtOpen
	refusedAtRead
	refusedByCache
	refusedFUSE
	refusedForNow // not kept: descriptors become free again

	numRefusals
)

func (r refusal) String() string {
	return [numRefusals]string{
		notRefused:      "not refused",
		refusedBySystem: "the file system has no direct reads",
		refusedAtOpen:   "the file can't be opened for direct reads",
		refusedAtRead:   "the file system refused a direct read",
		refusedByCache:  "the kernel does not tell what the page cache holds (cachestat, Linux 6.5)",
		refusedFUSE:     "a direct read of FUSE that is not answered keeps the process from ending (they are made with --direct on)",
		refusedForNow:   "no descriptor was left",
	}[r]
}

// directFile is a File opened again with O_DIRECT. The alignments are powers of two, in bytes.
type directFile struct {
	fd              int
	offsetAlignment int64
	memoryAlignment uintptr
}

// NewFile makes a File from a descriptor that was opened for reading without O_DIRECT and
// O_NONBLOCK. The File owns the descriptor from then on. It opens a second one at the first direct
// read.
func NewFile(fd int, policy Direct) *File {
	on := TraitsOf(fd)
	return &File{fd: fd, policy: policy, remote: on.Remote, holds: on.HoldsKilled}
}

// VerifyWith sets a function that is called after reads of the File have ended and before their
// Done. One call may serve several reads, which makes each cheaper. An error of verify replaces
// theirs. verify may be called concurrently and must not wait for a disk; only that of a Remote
// File may wait for the server, as its reads may. VerifyWith must be called before the first
// request.
func (f *File) VerifyWith(verify func() error) { f.verify = verify }

// Remote reports whether the file was on remote storage when the File was made: see the function
// Remote.
func (f *File) Remote() bool { return f.remote }

// FD is the descriptor passed to NewFile.
func (f *File) FD() int { return f.fd }

// Close closes the file. No request may be using it.
func (f *File) Close() error {
	err := unix.Close(f.fd)
	if d := f.direct.Load(); d != nil {
		err = errors.Join(err, unix.Close(d.fd))
	}
	return err
}

// isRefused reports that no read is direct any more.
func (f *File) isRefused() bool { return f.refused.Load() != 0 }

// readsDirectly reports whether a read should bypass the page cache, and opens the file for that.
func (f *File) readsDirectly(c *counters, off int64, size int) bool {
	return f.wantsDirect(c, off, size) && f.openDirect(c) != nil
}

// wantsDirect reports whether a read should bypass the page cache, if possible.
func (f *File) wantsDirect(c *counters, off int64, size int) bool {
	switch {
	case f.policy == DirectNever || f.isRefused():
		return false
	case f.policy == DirectAlways:
		return true
	case f.holds:
		c.refuse(f, refusedFUSE)
		return false
	}
	return size >= minDirectBytes && !f.cached(c, off, size)
}

// alwaysDirect reports, without side effects, whether all reads are known to bypass the page cache.
func (f *File) alwaysDirect() bool {
	return f.policy == DirectAlways && f.direct.Load() != nil && !f.isRefused()
}

// openDirect returns the file opened for direct reads, nil if that is not possible.
func (f *File) openDirect(c *counters) *directFile {
	if d := f.direct.Load(); d != nil {
		return d
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if d := f.direct.Load(); d != nil || f.isRefused() {
		return d
	}
	d := &directFile{fd: -1}
	if d.offsetAlignment, d.memoryAlignment = directAlignment(f.fd); d.offsetAlignment == 0 {
		c.refuse(f, refusedBySystem)
		return nil
	}
	// The very same file, whatever is at its path by now.
	var err error
	d.fd, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	switch err {
	case nil:
	case unix.EINTR:
		return nil
	case unix.EMFILE, unix.ENFILE:
		c.refusals[refusedForNow].Add(1)
		return nil
	default:
		c.refuse(f, refusedAtOpen)
		return nil
	}
	f.direct.Store(d)
	return d
}

// directAlignment returns what offsets and sizes, and addresses, of direct reads must be multiples
// of; 0 if direct reads are impossible.
func directAlignment(fd int) (offset int64, memory uintptr) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return unknownAlignment, unknownAlignment
	}
	o, m := st.Dio_offset_align, st.Dio_mem_align
	if o == 0 || m == 0 || o&(o-1) != 0 || m&(m-1) != 0 || o > blockAlignment || m > blockAlignment {
		return 0, 0
	}
	return int64(o), uintptr(m)
}

// straight returns how much of a direct read at off can go into buf itself: 0 if it must go into a
// block first. A size that is not aligned costs a second read, of the rest; for a small rest a copy
// costs less.
func (d *directFile) straight(off int64, buf []byte) int {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if off&(d.offsetAlignment-1) != 0 || address&(d.memoryAlignment-1) != 0 {
		return 0
	}
	n := len(buf) &^ int(d.offsetAlignment-1)
	if n < len(buf) && n < minStraightBytes {
		return 0
	}
	return n
}

// readCached reads the data at off that is in the page cache, without waiting for a disk, and
// reports whether buf is full. The kernel begins to read what is missing.
func (f *File) readCached(buf []byte, off int64) (n int, full bool) {
	for n < len(buf) && !f.waits.Load() {
		vector := [1][]byte{buf[n:]}
		got, err := unix.Preadv2(f.fd, vector[:], off+int64(n), unix.RWF_NOWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EOPNOTSUPP || err == unix.EINVAL || err == unix.ENOSYS || err == unix.EPERM:
			f.waits.Store(true)
			return n, false
		case err != nil || got == 0: // EAGAIN, or an error that an ordinary read will return
			return n, false
		default:
			n += got
		}
	}
	return n, n == len(buf)
}

// cached reports whether the page cache contains all of a range (Linux 6.5). RWF_NOWAIT can't be
// used for that, because it reads ahead what is missing.
func (f *File) cached(c *counters, off int64, size int) bool {
	at := struct{ off, size uint64 }{uint64(off), uint64(size)}
	var counts struct{ cached, dirty, writeback, evicted, recentlyEvicted uint64 }
	_, _, errno := unix.Syscall6(unix.SYS_CACHESTAT, uintptr(f.fd), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&counts)), 0, 0, 0)
	if errno != 0 {
		// Unknown: data in memory must not be read from the disk.
		c.refuse(f, refusedByCache)
		return true
	}
	pages := (off+int64(size)+pageBytes-1)/pageBytes - off/pageBytes
	return counts.cached >= uint64(pages)
}

// Remote reports whether an open file is on storage where a read may wait for another process or
// machine, perhaps forever. Two rules follow:
//
//   - Its reads are made by threads. The kernel starts a direct read of FUSE within
//     io_uring_enter and waits there for the answer, so the whole ring waits; other reads
//     it passes to a few threads of its own.
//   - It is not mapped. Its pages may be taken away at any time, and a thread that
//     touches a missing page waits in a page fault. No signal ends that wait, and each
//     stop of the Go scheduler waits for it, too.
func Remote(fd int) bool { return TraitsOf(fd).Remote }

// Traits are the properties of a file system that matter to programs that read its files and rely on
// them being unchanged. They are a plain value, from one table by the type that statfs returns.
//
//	file descriptor ──statfs──► type ──table──► Traits
//
// A file system that is not in the table is treated like one on a local disk, with permanent inode
// numbers and times. A file is judged by the file system that the file itself is on, since links
// and mounts lead to others.
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

// traits has the file systems that differ from Traits{}.
//
//	FUSE       sshfs, gcsfuse, rclone, s3fs, ntfs-3g, virtiofs, lsiofs …: most number
//	           inodes as they are looked up, and make up ctime
//	NFS, Ceph, Lustre, GPFS, BeeGFS, OrangeFS, AFS, Coda: numbers are the server's
//	SMB        with noserverino, or a server without numbers, they are the client's
//	9p         numbers depend on what the server makes of its own
//	FAT, exfat numbers are assigned when a file is looked up; FAT's mtime has steps of
//	           2 s; there is no ctime on the disk
//	vboxsf, aufs: numbers exist only in memory
var traits = map[int64]Traits{
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

// TraitsOf returns the traits of the file system of an open file, which may be opened with O_PATH.
// It may wait if the file is remote.
func TraitsOf(fd int) Traits {
	var st unix.Statfs_t
	for {
		switch err := unix.Fstatfs(fd, &st); err {
		case nil:
			return traits[int64(uint32(st.Type))]
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
