package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sort"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Image is a checked, sealed index in its stored form. It holds only the bytes, so it takes no
// heap, whatever its size. It is immutable and safe for concurrent use. Shards are addressed by
// their number, in dataset order.
type Image struct {
	data    []byte
	h       imageHeader
	mapping *mapping // that contains data; nil if data is the caller's
	held    *os.File // of a snapshot's index: locked so that it is not removed; or nil
}

// Version is the version of the stored form. An index of another version is not read.
const Version = 3

// Generation is the version of the rules by which shards are chosen and cut. An index of another
// generation may contain files that are not shards, or other records, and nothing in it shows this:
// it is rebuilt. A change of the rules raises it, and leaves Version, which is part of Key, as it
// is.
const Generation = 1

const (
	imageMagic       = "lsiofsIX"
	imageHeaderBytes = 256
	shardEntryBytes  = 72
	// Each checksum covers this many bytes, so that several cores can check a large index, and
	// writing computes them without reading back.
	segmentBytes = 4 << 20
)

// imageHeader is the beginning of a sealed index.
type imageHeader struct {
	fileBytes   uint64
	shards      uint64
	records     uint64
	streamBytes uint64
	keyed       uint64 // 1: every shard has key hashes
	tableAt     uint64 // shards × shardEntryBytes
	startsAt    uint64 // (shards+1) × 8
	pathsAt     uint64
	judgedAt    uint64 // files whose content was found not to be a shard's
	judgedBytes uint64
	formatAt    uint64 // the format's parameters, as text
	formatBytes uint64
	blobsAt     uint64
	sumsAt      uint64 // xxh3 of each segment between the header and here
	sumsHash    uint64 // xxh3 of those
	key         Key
	fingerprint [32]byte
	// Generation follows at byte 200.
}

func (h *imageHeader) fields() []*uint64 {
	return []*uint64{&h.fileBytes, &h.shards, &h.records, &h.streamBytes, &h.keyed, &h.tableAt, &h.startsAt, &h.pathsAt,
		&h.judgedAt, &h.judgedBytes, &h.formatAt, &h.formatBytes, &h.blobsAt, &h.sumsAt, &h.sumsHash}
}

func (h *imageHeader) marshal() []byte {
	b := append(make([]byte, 0, imageHeaderBytes), imageMagic...)
	b = binary.LittleEndian.AppendUint64(b, Version)
	for _, f := range h.fields() {
		b = binary.LittleEndian.AppendUint64(b, *f)
	}
	b = append(append(b, h.key[:]...), h.fingerprint[:]...)
	b = binary.LittleEndian.AppendUint64(b, Generation)
	b = append(b, make([]byte, imageHeaderBytes-8-len(b))...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

var (
	errForeign = errors.New("is not an index of this dataset and version")
	errDamaged = errors.New("is damaged")
)

func parseImageHeader(b []byte) (imageHeader, error) {
	var h imageHeader
	if len(b) < imageHeaderBytes || string(b[:8]) != imageMagic {
		return h, errForeign
	}
	if v := binary.LittleEndian.Uint64(b[8:]); v != Version {
		return h, fmt.Errorf("%w: it is of version %d, and this lsiofs reads version %d", errForeign, v, Version)
	}
	if xxh3.Hash(b[:imageHeaderBytes-8]) != binary.LittleEndian.Uint64(b[imageHeaderBytes-8:]) {
		return h, fmt.Errorf("%w in its header", errDamaged)
	}
	at := 16
	for _, f := range h.fields() {
		*f = binary.LittleEndian.Uint64(b[at:])
		at += 8
	}
	at += copy(h.key[:], b[at:])
	at += copy(h.fingerprint[:], b[at:])
	if g := binary.LittleEndian.Uint64(b[at:]); g != Generation {
		return h, fmt.Errorf("%w: its shards were chosen by rules of version %d, and this lsiofs has version %d", errForeign, g, Generation)
	}
	at += 8
	for _, v := range b[at : imageHeaderBytes-8] {
		if v != 0 {
			return h, errForeign
		}
	}
	return h, nil
}

// Open checks all of a sealed index, its checksums and its structure, and refuses one that is not
// whole, or whose key differs. After that no method can read outside data, which the Image retains
// and which must not change.
func Open(data []byte, key Key) (*Image, error) {
	h, err := parseImageHeader(data)
	if err != nil {
		return nil, err
	}
	if h.key != key {
		return nil, errForeign
	}
	if h.fileBytes != uint64(len(data)) {
		return nil, fmt.Errorf("%w: it has %d bytes, not %d", errDamaged, len(data), h.fileBytes)
	}
	m := &Image{data: data, h: h}
	if err := m.checkSums(); err != nil {
		return nil, err
	}
	if err := m.checkParts(); err != nil {
		return nil, err
	}
	if err := m.checkShards(); err != nil {
		return nil, err
	}
	return m, nil
}

// openMapped is Open for a mapping, which the image closes.
func openMapped(m *mapping, key Key) (*Image, error) {
	i, err := Open(m.data, key)
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	i.mapping = m
	return i, nil
}

// Close frees the index; neither it nor its blobs may be used afterwards. It is idempotent, and
// does nothing for nil.
func (m *Image) Close() error {
	if m == nil {
		return nil
	}
	if m.held != nil {
		_ = m.held.Close() // this unlocks it
		m.held = nil
	}
	return m.mapping.Close()
}

// checkSums compares every segment with its checksum, on all cores.
func (m *Image) checkSums() error {
	h := &m.h
	if h.sumsAt < imageHeaderBytes || h.sumsAt > h.fileBytes {
		return errDamaged
	}
	sums, body := m.data[h.sumsAt:], m.data[imageHeaderBytes:h.sumsAt]
	n := (len(body) + segmentBytes - 1) / segmentBytes
	if len(sums) != n*8 || xxh3.Hash(sums) != h.sumsHash {
		return fmt.Errorf("%w in its checksums", errDamaged)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			from := i * segmentBytes
			segment := body[from:min(from+segmentBytes, len(body))]
			if xxh3.Hash(segment) != binary.LittleEndian.Uint64(sums[8*i:]) {
				return fmt.Errorf("%w between bytes %d and %d", errDamaged, imageHeaderBytes+from, imageHeaderBytes+from+len(segment))
			}
			return nil
		})
	}
	return g.Wait()
}

// checkParts checks that the parts are where the header puts them, in order.
func (m *Image) checkParts() error {
	h := &m.h
	if h.shards > h.sumsAt/shardEntryBytes || h.records > math.MaxInt64 || h.streamBytes > math.MaxInt64 {
		return errDamaged
	}
	at := uint64(imageHeaderBytes)
	for _, p := range []struct{ from, size uint64 }{
		{h.tableAt, h.shards * shardEntryBytes}, {h.startsAt, (h.shards + 1) * 8}, {h.pathsAt, 0},
		{h.judgedAt, h.judgedBytes}, {h.formatAt, h.formatBytes}, {h.blobsAt, 0}, {h.sumsAt, 0},
	} {
		if p.from < at || p.from > h.sumsAt || p.size > h.sumsAt-p.from {
			return errDamaged
		}
		at = p.from + p.size
	}
	return nil
}

func (m *Image) checkShards() error {
	h := &m.h
	if m.Start(0) != 0 || m.Start(h.shards) != h.records {
		return errDamaged
	}
	for i := range h.shards {
		e := m.entry(i)
		pathAt, pathBytes := binary.LittleEndian.Uint64(e), uint64(binary.LittleEndian.Uint32(e[8:]))
		if pathAt < h.pathsAt || pathAt > h.judgedAt || pathBytes > h.judgedAt-pathAt {
			return errDamaged
		}
		blobAt, blobSize := binary.LittleEndian.Uint64(e[40:]), binary.LittleEndian.Uint64(e[48:])
		if blobAt < h.blobsAt || blobAt > h.sumsAt || blobSize > h.sumsAt-blobAt {
			return errDamaged
		}
		b := m.Blob(i)
		if err := b.check(); err != nil {
			return fmt.Errorf("%w: shard %d: %w", errDamaged, i, err)
		}
		bh := b.Header()
		if m.Start(i) > h.records || m.Start(i)+bh.Records != m.Start(i+1) || uint64(bh.flags&flagKeyed) != h.keyed*flagKeyed {
			return errDamaged
		}
	}
	return nil
}

// Shards returns the number of shards.
func (m *Image) Shards() uint64 { return m.h.shards }

// Records returns the number of records of all shards.
func (m *Image) Records() uint64 { return m.h.records }

// StreamBytes returns the sum of the sizes of all records.
func (m *Image) StreamBytes() int64 { return int64(m.h.streamBytes) }

// Keyed reports whether blobs have key hashes.
func (m *Image) Keyed() bool { return m.h.keyed != 0 }

// Fingerprint returns the dataset's fingerprint.
func (m *Image) Fingerprint() [32]byte { return m.h.fingerprint }

// Identity distinguishes this index from every other, even of the same dataset: two with the same
// identity have the same content.
func (m *Image) Identity() [32]byte { return sha256.Sum256(m.data[:imageHeaderBytes]) }

// Format returns the text of the format by which the shards were cut: Content.Format.
func (m *Image) Format() string {
	return string(m.data[m.h.formatAt : m.h.formatAt+m.h.formatBytes])
}

// Judged returns the files that were opened and are not shards.
func (m *Image) Judged() map[storage.Object]bool {
	return unmarshalJudged(m.data[m.h.judgedAt : m.h.judgedAt+m.h.judgedBytes])
}

// Find returns the number of the shard with that path.
func (m *Image) Find(path string) (i uint64, found bool) {
	want := []byte(path)
	n := int(m.h.shards)
	k := sort.Search(n, func(k int) bool { return bytes.Compare(m.path(uint64(k)), want) >= 0 })
	if k == n || !bytes.Equal(m.path(uint64(k)), want) {
		return 0, false
	}
	return uint64(k), true
}

// Start returns the number of the first record of shard i; if i is the number of shards, the number
// of all records.
func (m *Image) Start(i uint64) uint64 {
	return binary.LittleEndian.Uint64(m.data[m.h.startsAt+8*i:])
}

// Blob returns the index of the records of shard i.
func (m *Image) Blob(i uint64) Blob {
	at, n := m.blobAt(i)
	return Blob(m.data[at : at+n : at+n])
}

// blobAt returns the location of shard i's blob in the index.
func (m *Image) blobAt(i uint64) (at, bytes uint64) {
	e := m.entry(i)
	return binary.LittleEndian.Uint64(e[40:]), binary.LittleEndian.Uint64(e[48:])
}

// Object returns shard i in the state in which it was indexed. Its path is a copy, which outlives
// the image.
func (m *Image) Object(i uint64) storage.Object {
	e := m.entry(i)
	return storage.Object{
		Path:      string(m.path(i)),
		SizeBytes: int64(binary.LittleEndian.Uint64(e[16:])),
		Version: storage.Version{
			ModTimeNanos:    int64(binary.LittleEndian.Uint64(e[24:])),
			ChangeTimeNanos: int64(binary.LittleEndian.Uint64(e[64:])),
			Inode:           binary.LittleEndian.Uint64(e[32:]),
		},
	}
}

// Codec returns the number of shard i's codec: 0 for none.
func (m *Image) Codec(i uint64) uint32 { return binary.LittleEndian.Uint32(m.entry(i)[12:]) }

// IDPrefix returns the first half of the IDs of shard i's records, big-endian.
func (m *Image) IDPrefix(i uint64) uint64 { return binary.LittleEndian.Uint64(m.entry(i)[56:]) }

// entry returns shard i's entry in the table.
func (m *Image) entry(i uint64) []byte {
	return m.data[m.h.tableAt+i*shardEntryBytes:][:shardEntryBytes]
}

func (m *Image) path(i uint64) []byte {
	e := m.entry(i)
	at := binary.LittleEndian.Uint64(e)
	return m.data[at : at+uint64(binary.LittleEndian.Uint32(e[8:]))]
}

// Is reports whether shard i is exactly that object, without copying its path.
func (m *Image) Is(i uint64, o storage.Object) bool {
	e := m.entry(i)
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(e[at:]) }
	return string(m.path(i)) == o.Path && int64(word(16)) == o.SizeBytes && int64(word(24)) == o.Version.ModTimeNanos &&
		int64(word(64)) == o.Version.ChangeTimeNanos && word(32) == o.Version.Inode
}

// Files that were opened and found not to be shards are remembered, so that an unchanged dataset
// opens without opening files.

// judgedHeadBytes is the size of size, mtime, ctime, inode and the length of the path.
const judgedHeadBytes = 4*8 + 4

func marshalJudged(list []storage.Object) []byte {
	var b []byte
	for _, o := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(o.SizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(o.Version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, uint64(o.Version.ChangeTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, o.Version.Inode)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(o.Path)))
		b = append(b, o.Path...)
	}
	return b
}

// unmarshalJudged reads all whole entries.
func unmarshalJudged(b []byte) map[storage.Object]bool {
	list := map[storage.Object]bool{}
	for len(b) >= judgedHeadBytes {
		n := uint64(binary.LittleEndian.Uint32(b[32:]))
		if n > uint64(len(b)-judgedHeadBytes) {
			break
		}
		list[storage.Object{
			Path:      string(b[judgedHeadBytes : judgedHeadBytes+n]),
			SizeBytes: int64(binary.LittleEndian.Uint64(b)),
			Version: storage.Version{
				ModTimeNanos:    int64(binary.LittleEndian.Uint64(b[8:])),
				ChangeTimeNanos: int64(binary.LittleEndian.Uint64(b[16:])),
				Inode:           binary.LittleEndian.Uint64(b[24:]),
			},
		}] = true
		b = b[judgedHeadBytes+n:]
	}
	return list
}

// mapping is a file mapped for reading, or a copy of it in memory. lsiofs never truncates or writes
// to a mapped file afterwards: a replacement is a new inode, and journals only grow.
type mapping struct{ data []byte }

// maxCopied is the size up to which an index is copied to memory on any file system: some million
// records.
const maxCopied = 16 << 20

// mapFile returns the first size bytes of f, which may be closed afterwards: a copy in memory,
// unless f is in memory or is large. Pages of a mapping can be evicted. If they can't be read
// again, the process is killed; while the server of a remote file system does not answer, the
// process hangs. So nothing on a remote file system is mapped.
func (s *Store) mapFile(f *os.File, size int64, inMemory bool) (*mapping, error) {
	remote := !inMemory && uring.TraitsOf(int(f.Fd())).Remote
	if size == 0 || inMemory || !remote && size > maxCopied {
		return mapPages(f, size)
	}
	if remote && size > maxCopied {
		s.log.Warn("the index is on a network file system or FUSE, so a copy of it is kept in memory; name a local directory with --index-dir",
			"dir", s.dir, "bytes", size)
	}
	if size < 0 || size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes do not fit into memory", f.Name(), size)
	}
	data, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", f.Name(), err)
	}
	m := &mapping{data: data}
	if _, err = io.ReadFull(io.NewSectionReader(f, 0, size), data); err == nil {
		err = unix.Mprotect(data, unix.PROT_READ)
	}
	if err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return m, nil
}

// mapPages maps the first size bytes of f.
func mapPages(f *os.File, size int64) (*mapping, error) {
	if size == 0 {
		return &mapping{}, nil
	}
	if size < 0 || size > math.MaxInt {
		return nil, fmt.Errorf("%s: %d bytes can't be mapped", f.Name(), size)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", f.Name(), err)
	}
	return &mapping{data: data}, nil
}

// Close unmaps; data may not be used afterwards.
func (m *mapping) Close() error {
	if m == nil || m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}

// memoryFile returns an unnamed file in memory, for an index that can't be written to its
// directory.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lsiofs-index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("an index in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), "index in memory"), nil
}

// mapWhole is mapFile for a complete file.
func (s *Store) mapWhole(f *os.File, inMemory bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return s.mapFile(f, info.Size(), inMemory)
}

// mapJournal is mapFile for a journal. If another process writes to it, only the whole entries are
// mapped: that process truncates what it could not write completely, and reading a mapping beyond
// the end of its file kills the reader.
func (s *Store) mapJournal(f *os.File, own bool) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if !own {
		size = wholeEntries(f, int64(len(s.journalHead(""))), size)
	}
	return s.mapFile(f, size, false)
}

// wholeEntries returns how many bytes the head and the whole entries of a journal take, judging by
// the lengths at the entries' beginning; their content is not checked.
func wholeEntries(f io.ReaderAt, head, size int64) int64 {
	if size < head {
		return 0
	}
	var lengths [24]byte // after the sum: lengths of the entry's head and of its blob
	for at := head; ; {
		if size-at < entryHeadBytes {
			return at
		}
		if _, err := f.ReadAt(lengths[:], at); err != nil {
			return at
		}
		headBytes, blobBytes := binary.LittleEndian.Uint64(lengths[8:]), binary.LittleEndian.Uint64(lengths[16:])
		left := uint64(size - at)
		if headBytes < entryHeadBytes || headBytes > left || blobBytes > left-headBytes {
			return at
		}
		at += int64(headBytes + blobBytes)
	}
}
