package fileset

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"sync"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// gathering lists one directory after another, and reuses its memory.
type gathering struct {
	listing *listing
	entries []byte // as getdents64 returns them
	names   []byte // of files, each followed by a NUL
	seen    []seen
	dirs    []below         // subdirectories to enter
	way     *filesystem.Way // to the directory, including itself
	linked  bool            // below.linked
	device  uint64          // of the directory
	inode   uint64
	bytes   []byte // of the segment
	hash    xxh3.Hasher
	word    [8]byte
}

// seen is a name in a directory, and what it is.
type seen struct {
	at, length         int // position in gathering.names
	device, inode      uint64
	size, mtime, ctime int64 // first the actual times, later the version's
	regular            bool
	link               bool
	directory          bool // a link to a directory
	young              bool // changed so recently that another change may not show
}

// attributes returns the recorded attributes of a regular file.
func (f *seen) attributes() filesystem.Attributes {
	return filesystem.Attributes{
		Device: f.device, Inode: f.inode, Mode: unix.S_IFREG, SizeBytes: f.size, ModTimeNanos: f.mtime, ChangeTimeNanos: f.ctime,
	}
}

// entriesBytes is how much of a directory is read at a time.
const entriesBytes = 64 << 10

// maxObjectBytes bounds an object, so that no sum of sizes overflows.
const maxObjectBytes = math.MaxInt64 / 4

// directory returns the segment of a directory, which is valid until the next call, and fills dirs.
// Errors of opening the directory are unix.Errno.
func (g *gathering) directory(b below) (segment, error) {
	path := b.path
	g.names, g.seen, g.dirs = g.names[:0], g.seen[:0], g.dirs[:0]
	l := g.listing
	fd, err := l.storage.openDirectory(path)
	if err != nil {
		return segment{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return segment{}, fmt.Errorf("stat: %w", err)
	}
	is := filesystem.FromStat(&st)
	if b.linked && b.above.Has(is.Device, is.Inode) {
		l.omit(path+"/", storage.OmittedLoop)
		return segment{}, nil
	}
	if b.linked {
		if err := l.enter(is.Device, is.Inode); err != nil {
			return segment{}, err
		}
	}
	g.way, g.linked, g.device, g.inode = b.above.Down(is.Device, is.Inode), b.linked, is.Device, is.Inode
	if err := g.read(fd, path); err != nil {
		return segment{}, err
	}
	if len(g.seen) == 0 || !l.wants(path, false) {
		return segment{}, g.links(fd, path)
	}
	// In the order of inodes, which are stored together on a disk.
	slices.SortFunc(g.seen, func(a, b seen) int { return cmp.Compare(a.inode, b.inode) })
	if err := g.lookAtAll(fd); err != nil {
		return segment{}, err
	}
	g.follow(path)
	g.seen = slices.DeleteFunc(g.seen, func(f seen) bool { return !f.regular })
	slices.SortFunc(g.seen, func(a, b seen) int { return bytes.Compare(g.name(&a), g.name(&b)) })
	return g.segment(path)
}

func (g *gathering) name(f *seen) []byte { return g.names[f.at : f.at+f.length] }

// read reads the names in a directory: of files and links, and of directories to enter.
func (g *gathering) read(fd int, path string) error {
	if g.entries == nil {
		g.entries = make([]byte, entriesBytes)
	}
	for {
		n, err := unix.Getdents(fd, g.entries)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		if err := g.listing.ctx.Err(); err != nil {
			return err
		}
		for b := g.entries[:n]; len(b) > 0; {
			length := binary.NativeEndian.Uint16(b[16:])
			g.entry(fd, path, b[:length])
			b = b[length:]
		}
	}
}

// entry processes one struct linux_dirent64: inode, offset, length, type, name.
func (g *gathering) entry(fd int, path string, b []byte) {
	const nameAt = 19
	name := b[nameAt:]
	name = name[:bytes.IndexByte(name, 0)]
	kind := b[18]
	if name[0] == '.' {
		if l := g.listing; l.match != nil && string(name) != "." && string(name) != ".." {
			hidden := join(path, name)
			if kind == unix.DT_DIR {
				hidden += "/"
			}
			l.omit(hidden, storage.OmittedHidden)
		}
		return
	}
	if kind == unix.DT_UNKNOWN {
		kind = kindOf(fd, name)
	}
	switch kind {
	case unix.DT_DIR:
		g.add(join(path, name), g.linked)
	case unix.DT_REG, unix.DT_LNK:
		if leaves := g.listing.storage.leaves; leaves != nil {
			if reason := leaves(path, name); reason != "" {
				g.listing.omit(join(path, name), reason)
				return
			}
		}
		g.seen = append(g.seen, seen{at: len(g.names), length: len(name), inode: binary.NativeEndian.Uint64(b), link: kind == unix.DT_LNK})
		g.names = append(append(g.names, name...), 0)
	default:
		g.listing.omit(join(path, name), storage.OmittedKind)
	}
}

// join returns the path of a name in a directory.
func join(dir string, name []byte) string {
	if dir == "." {
		return string(name)
	}
	return dir + "/" + string(name)
}

// add adds a directory to dirs if it must be entered, or is an object itself.
func (g *gathering) add(path string, linked bool) {
	l := g.listing
	if l.match == nil {
		return
	}
	itself, inside := l.wants(path, false), l.wants(path, true)
	if itself || inside {
		g.dirs = append(g.dirs, below{path, g.way, linked})
	}
}

// follow adds the directories that links lead to, except those that lead back to a directory above.
func (g *gathering) follow(path string) {
	for i := range g.seen {
		f := &g.seen[i]
		if !f.directory {
			continue
		}
		if at := join(path, g.name(f)); g.way.Has(f.device, f.inode) {
			g.listing.omit(at+"/", storage.OmittedLoop)
		} else {
			g.add(at, true)
		}
	}
}

// links handles a directory whose files are not wanted: links in it may lead to directories that
// are. A link to nothing is an error only if a directory of that name is wanted.
func (g *gathering) links(fd int, path string) error {
	l := g.listing
	if l.match == nil {
		return nil
	}
	for i := range g.seen {
		f := &g.seen[i]
		if !f.link {
			continue
		}
		at := join(path, g.name(f))
		if itself, inside := l.wants(at, false), l.wants(at, true); !itself && !inside {
			continue
		}
		if err := g.look(fd, f); err != nil {
			return err
		}
	}
	g.follow(path)
	return l.ctx.Err()
}

// kindOf returns the type of a name, for file systems that don't return it with the name.
func kindOf(fd int, name []byte) uint8 {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, string(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return unix.DT_UNKNOWN // it is gone
	}
	return uint8(st.Mode & unix.S_IFMT >> 12)
}

// lookAtAll stats the files. Young files are examined again once another change of them would show.
func (g *gathering) lookAtAll(fd int) error {
	l := g.listing
	settling := l.systems.Young()
	from := time.Now()
	err := l.each(len(g.seen), func(from, to int) error {
		for i := from; i < to; i++ {
			if err := g.look(fd, &g.seen[i]); err != nil {
				return err
			}
		}
		return l.ctx.Err()
	})
	if err != nil {
		return err
	}
	to, some := time.Now(), false
	for i := range g.seen {
		if f := &g.seen[i]; f.regular {
			is := f.attributes()
			f.young = settling.Add(&is, nil, g.traits(fd, f), from, to)
			some = some || f.young
		}
	}
	for some {
		last, err := settling.Wait(l.ctx)
		if err != nil {
			return err
		}
		if some, err = g.lookAgain(fd, settling, last); err != nil {
			return err
		}
	}
	for i := range g.seen {
		if f := &g.seen[i]; f.regular {
			is := f.attributes()
			v := is.Version(g.traits(fd, f))
			f.mtime, f.ctime, f.inode = v.ModTimeNanos, v.ChangeTimeNanos, v.Inode
		}
	}
	return nil
}

// lookAgain examines the young files, and returns whether some are still young.
func (g *gathering) lookAgain(fd int, settling *filesystem.Young, last bool) (some bool, err error) {
	for i := range g.seen {
		f := &g.seen[i]
		if !f.young {
			continue
		}
		before, from := f.attributes(), time.Now()
		f.regular, f.young = false, false
		if err := g.look(fd, f); err != nil {
			return false, err
		}
		is := f.attributes()
		if !f.regular || !settling.Add(&is, &before, g.traits(fd, f), from, time.Now()) {
			continue
		}
		if last {
			is.NeverMet()
			f.mtime = is.ModTimeNanos
			continue
		}
		f.young, some = true, true
	}
	return some, g.listing.ctx.Err()
}

// traits returns the traits of the file system of a file.
func (g *gathering) traits(fd int, f *seen) uring.Traits {
	systems := &g.listing.systems
	if traits, ok := systems.Known(f.device); ok {
		return traits
	}
	return systems.Traits(fd, string(g.name(f)), f.device)
}

// look stats a file. Anything that is not a regular file, or is gone, is not regular.
func (g *gathering) look(fd int, f *seen) error {
	var st unix.Statx_t
	name := g.names[f.at:]
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd), uintptr(unsafe.Pointer(&name[0])), unix.AT_NO_AUTOMOUNT, filesystem.StatxMask, uintptr(unsafe.Pointer(&st)), 0)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		default:
			return g.notLooked(fd, f, errno)
		}
		break
	}
	if f.link {
		if err := g.listing.storage.never.Check(fd, string(g.name(f))); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", g.name(f), err)
		}
	}
	switch is := filesystem.FromStatx(&st); {
	case is.Regular():
		f.regular, f.device, f.inode = true, is.Device, is.Inode
		f.size, f.mtime, f.ctime = is.SizeBytes, is.ModTimeNanos, is.ChangeTimeNanos
	case is.Mode&unix.S_IFMT == unix.S_IFDIR:
		f.directory, f.device, f.inode = true, is.Device, is.Inode
	}
	return nil
}

// notLooked distinguishes a file that is gone, which is not an error, from one that can't be
// examined.
func (g *gathering) notLooked(fd int, f *seen, err error) error {
	name := string(g.name(f))
	var st unix.Stat_t
	if lerr := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); lerr == unix.ENOENT {
		return nil
	} else if lerr == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return fmt.Errorf("%s: follow symbolic link: %w: mend or remove the link, or leave it out with --exclude", name, err)
	}
	return fmt.Errorf("%s: stat: %w", name, err)
}

var errTooLarge = errors.New("its files are larger together than an object can be")

// segment builds the segment of a directory from its entries.
func (g *gathering) segment(path string) (segment, error) {
	before := len(path) + 1 // length of the part of a path before a name
	if path == "." {
		before = 0
	}
	framing := g.listing.storage.framing
	align := framing.AlignBytes()
	b, nameEnd, offset := g.bytes[:0], uint64(0), int64(0)
	for i := range g.seen {
		f := &g.seen[i]
		nameEnd += uint64(f.length)
		for _, v := range [fileWords]uint64{uint64(offset), uint64(f.size), uint64(f.mtime), f.inode, nameEnd} {
			b = binary.NativeEndian.AppendUint64(b, v)
		}
		if f.size > maxObjectBytes {
			return segment{}, errTooLarge
		}
		offset += framing.HeaderBytes(before+f.length, f.size) + (f.size+align-1)/align*align
		if offset > maxObjectBytes {
			return segment{}, errTooLarge
		}
	}
	for i := range g.seen {
		b = append(b, g.name(&g.seen[i])...)
	}
	g.bytes = b
	g.hash.Reset()
	_, _ = g.hash.Write(b)
	for i := range g.seen {
		_, _ = g.hash.Write(binary.NativeEndian.AppendUint64(g.word[:0], uint64(g.seen[i].ctime)))
	}
	return segment{bytes: b, files: len(g.seen), sizeBytes: offset, version: g.hash.Sum128()}, nil
}

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

var errNotKept = errors.New("the listing can't be kept")

// scratch is the file that becomes a table. put may be called concurrently.
type scratch struct {
	dir  string // where it is; "": in memory
	file *os.File

	mu   sync.Mutex
	end  uint64
	sums []uint64 // nil in memory
}

// placed is the position of a run of bytes in a table, and that of its first block's checksum.
type placed struct{ at, bytes, sum uint64 }

// newScratch creates an unnamed file in dir. It is in memory if that fails, or if dir is on another
// machine's disk: a mapping from there may hang.
func newScratch(dir string) (*scratch, error) {
	if dir != "" {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil && uring.Remote(fd) {
			_ = unix.Close(fd)
		} else if err == nil {
			return &scratch{dir: dir, file: os.NewFile(uintptr(fd), dir+"/(listing)")}, nil
		}
	}
	fd, err := unix.MemfdCreate("lsiofs-listing", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a listing in memory: %w", err)
	}
	return &scratch{file: os.NewFile(uintptr(fd), "listing in memory")}, nil
}

// put writes b at a multiple of 8 and returns its position.
func (s *scratch) put(b []byte) (placed, error) {
	var sums []uint64
	if s.dir != "" {
		sums = sumsOf(b)
	}
	s.mu.Lock()
	p := placed{at: s.end, bytes: uint64(len(b)), sum: uint64(len(s.sums))}
	s.end += pad8(p.bytes)
	s.sums = append(s.sums, sums...)
	s.mu.Unlock()
	if _, err := s.file.WriteAt(b, int64(p.at)); err != nil {
		return placed{}, fmt.Errorf("%w: %w", errNotKept, err)
	}
	return p, nil
}

// toDisk writes everything to the disk, so that a disk that is full, or fails, shows this now. If a
// file system does not support that, the checksums have to show it.
func (s *scratch) toDisk() error {
	if s.dir == "" {
		return nil
	}
	for {
		switch err := unix.SyncFileRange(int(s.file.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER); err {
		case unix.EINTR:
		case nil, unix.ENOSYS, unix.EINVAL, unix.ESPIPE, unix.EOPNOTSUPP, unix.EPERM:
			return nil
		default:
			return fmt.Errorf("%w: %w", errNotKept, err)
		}
	}
}

// found is a directory whose segment is in the scratch file.
type found struct {
	path    string
	at      placed
	segment segment // without bytes
	device  uint64
	inode   uint64
	linked  bool // below.linked
}

// seal writes the entries for list after the segments, sorted by path, and maps the file.
func (s *scratch) seal(list []found) (*table, error) {
	sort.Slice(list, func(i, j int) bool { return list[i].path < list[j].path })
	var paths []byte
	for i := range list {
		paths = append(paths, list[i].path...)
	}
	t := &table{dir: s.dir, count: len(list)}
	t.users.Store(1)
	var err error
	if t.paths, err = s.put(paths); err != nil {
		return nil, err
	}
	entries, pathAt := make([]byte, 0, len(list)*entryBytes), t.paths.at
	for i := range list {
		d := &list[i]
		for _, v := range [entryWords]uint64{
			pathAt, uint64(len(d.path)), d.at.at, d.at.bytes,
			uint64(d.segment.files), uint64(d.segment.sizeBytes), d.segment.version.Hi, d.segment.version.Lo, d.at.sum,
		} {
			entries = binary.NativeEndian.AppendUint64(entries, v)
		}
		pathAt += uint64(len(d.path))
	}
	if t.entries, err = s.put(entries); err != nil {
		return nil, err
	}
	if t.sums = s.sums; s.end == 0 {
		return t, nil
	}
	if err := s.file.Truncate(int64(s.end)); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKept, err)
	}
	if err := s.toDisk(); err != nil {
		return nil, err
	}
	if t.data, err = unix.Mmap(int(s.file.Fd()), 0, int(s.end), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map the listing: %w", err)
	}
	return t, nil
}
