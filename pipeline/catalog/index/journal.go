package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	journalMagic = "lsiofsJN"
	// Finished shards are written once there is this much of them, or after this delay: a killed
	// build loses no more.
	journalBufferBytes = 256 << 10
	journalDelay       = time.Second
	entryHeadBytes     = 7*8 + 4 + 4 // sum, head and blob lengths, size, mtime, inode, ctime, codec, path length
)

// journal stores finished shards as they come, in the index directory, or in memory if that can't
// be written. append may be called concurrently.
type journal struct {
	mu      sync.Mutex
	store   *Store
	head    []byte // beginning of every segment
	parts   []segment
	buffer  []byte
	waiting []where // entries in buffer
	flushed time.Time
	where   []where
}

// segment is one file of a journal. Usually there is one; a second one, in memory, follows if the
// first can no longer be written.
type segment struct {
	f        *os.File
	bytes    int64 // written completely
	inMemory bool
}

// where is the location of a shard's blob in a journal.
type where struct {
	shard   int
	codec   uint32
	segment int
	at      int64
	bytes   int
	sum     uint64 // xxh3 of the blob as written
}

func newJournal(s *Store, format string) *journal {
	return &journal{store: s, head: s.journalHead(format), flushed: time.Now()}
}

// journalVersion follows the magic of a journal.
const journalVersion = Version | Generation<<32

// outdated reports whether a journal is of an earlier generation, so that it will never be read
// again.
func outdated(data []byte) bool {
	if len(data) < 16 || string(data[:8]) != journalMagic {
		return false
	}
	v := binary.LittleEndian.Uint64(data[8:])
	return uint32(v) == Version && v < journalVersion
}

// journalHead returns the beginning of a journal for shards in a format.
func (s *Store) journalHead(format string) []byte {
	head := append([]byte(journalMagic), make([]byte, 8)...)
	binary.LittleEndian.PutUint64(head[8:], journalVersion)
	head = append(head, s.key[:]...)
	return binary.LittleEndian.AppendUint64(head, xxh3.HashString(format))
}

// append adds a finished shard; shard is its number in the build.
func (j *journal) append(shard int, p Shard) error {
	head := marshalEntryHead(p)
	j.mu.Lock()
	defer j.mu.Unlock()
	w := where{shard: shard, codec: p.Codec, at: int64(len(j.buffer) + len(head)), bytes: len(p.Blob), sum: xxh3.Hash(p.Blob)}
	if len(p.Blob) < journalBufferBytes {
		j.buffer = append(append(j.buffer, head...), p.Blob...)
		j.waiting = append(j.waiting, w)
		if len(j.buffer) < journalBufferBytes && time.Since(j.flushed) < journalDelay {
			return nil
		}
		return j.flush()
	}
	if err := j.flush(); err != nil { // large ones are not copied
		return err
	}
	w.at = int64(len(head))
	return j.write([]where{w}, head, p.Blob)
}

func (j *journal) flush() error {
	j.flushed = time.Now()
	if len(j.buffer) == 0 {
		return nil
	}
	err := j.write(j.waiting, j.buffer)
	j.buffer, j.waiting = j.buffer[:0], j.waiting[:0]
	return err
}

// write appends data, in memory if the directory fails. The offsets in list are relative to the
// first byte of data.
func (j *journal) write(list []where, data ...[]byte) error {
	for {
		if len(j.parts) == 0 {
			if err := j.begin(); err != nil {
				return err
			}
		}
		k := len(j.parts) - 1
		s := &j.parts[k]
		at, err := writeAll(s.f, s.bytes, data...)
		if err == nil {
			for _, w := range list {
				w.segment, w.at = k, w.at+s.bytes
				j.where = append(j.where, w)
			}
			s.bytes = at
			return nil
		}
		if s.inMemory {
			return fmt.Errorf("keeping the index in memory: %w", err)
		}
		j.warn(err)
		_ = s.f.Truncate(s.bytes)
		if err := j.beginInMemory(); err != nil {
			return err
		}
	}
}

func writeAll(f *os.File, at int64, data ...[]byte) (int64, error) {
	for _, d := range data {
		n, err := f.WriteAt(d, at)
		if err != nil {
			return at, err
		}
		at += int64(n)
	}
	return at, nil
}

func (j *journal) warn(err error) {
	j.store.log.Warn("index directory can't be written: the index is kept in memory and built again by the next run; free space there or name another with --index-dir",
		"dir", j.store.dir, "error", err)
}

// begin makes the first segment.
func (j *journal) begin() error {
	if j.store.dir == "" {
		return j.beginInMemory() // OpenStore has logged the reason
	}
	f, err := j.store.create("journal")
	if err == nil {
		if _, err = f.WriteAt(j.head, 0); err == nil {
			j.parts = append(j.parts, segment{f: f, bytes: int64(len(j.head))})
			return nil
		}
		_ = os.Remove(f.Name())
		_ = f.Close()
	}
	j.warn(err)
	return j.beginInMemory()
}

func (j *journal) beginInMemory() error {
	f, err := memoryFile()
	if err == nil {
		j.parts = append(j.parts, segment{f: f, inMemory: true})
	}
	return err
}

// inMemory reports whether the index directory was found not to be writable.
func (j *journal) inMemory() bool {
	return len(j.parts) > 0 && j.parts[len(j.parts)-1].inMemory
}

// blobs writes the buffered entries and maps everything: set is called with each shard's codec and
// blob, which stays valid until the mappings are closed. A blob that reads back differently is an
// error: a successful write may still be lost when the kernel writes back later.
func (j *journal) blobs(set func(shard int, codec uint32, b Blob)) ([]*mapping, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.flush(); err != nil {
		return nil, err
	}
	var maps []*mapping
	for _, s := range j.parts {
		m, err := j.store.mapFile(s.f, s.bytes, s.inMemory)
		if err != nil {
			return maps, err
		}
		maps = append(maps, m)
	}
	for _, w := range j.where {
		b := maps[w.segment].data[w.at : w.at+int64(w.bytes)]
		if xxh3.Hash(b) != w.sum {
			return maps, fmt.Errorf("%s lost what was written to it: check its disk, or name another directory with --index-dir", j.store.dir)
		}
		set(w.shard, w.codec, b)
	}
	return maps, nil
}

// close ends writing. What was written remains for the next run, unless keep is false. It is
// idempotent.
func (j *journal) close(keep bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if keep {
		if err := j.flush(); err != nil {
			j.store.log.Warn("finished shards could not be stored, so the next run indexes them again", "error", err)
		}
	}
	for _, s := range j.parts {
		if !s.inMemory && !keep {
			_ = os.Remove(s.f.Name())
		}
		_ = s.f.Close()
	}
	j.parts, j.where, j.buffer, j.waiting = nil, nil, nil, nil
}

// marshalEntryHead returns what precedes a blob: the entry's checksum, lengths, and the shard's
// state when it was indexed.
func marshalEntryHead(p Shard) []byte {
	path := p.Object.Path
	b := make([]byte, 8, entryHeadBytes+pad8(uint64(len(path))))
	b = binary.LittleEndian.AppendUint64(b, entryHeadBytes+pad8(uint64(len(path))))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.Blob)))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Object.SizeBytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Object.Version.ModTimeNanos))
	b = binary.LittleEndian.AppendUint64(b, p.Object.Version.Inode)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Object.Version.ChangeTimeNanos))
	b = binary.LittleEndian.AppendUint32(b, p.Codec)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(path)))
	b = append(b, path...)
	b = append(b, make([]byte, cap(b)-len(b))...)
	binary.LittleEndian.PutUint64(b, entrySum(b[8:], p.Blob))
	return b
}

func entrySum(head []byte, b Blob) uint64 {
	var h xxh3.Hasher
	_, _ = h.Write(head)
	_, _ = h.Write(b)
	return h.Sum64()
}

var errJournal = errors.New("is not a journal of this dataset, format and version")

// readJournal returns the entries of a journal up to the first one that is not whole: everything
// after it was lost with the process that wrote it.
func readJournal(data, head []byte) ([]Shard, error) {
	if len(data) < len(head) || string(data[:len(head)]) != string(head) {
		return nil, errJournal
	}
	var list []Shard
	for rest := data[len(head):]; ; {
		p, n, ok := readEntry(rest)
		if !ok {
			return list, nil
		}
		list = append(list, p)
		rest = rest[n:]
	}
}

func readEntry(b []byte) (p Shard, n uint64, ok bool) {
	if len(b) < entryHeadBytes {
		return p, 0, false
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	size, headBytes, blobBytes := uint64(len(b)), word(8), word(16)
	pathBytes := uint64(binary.LittleEndian.Uint32(b[60:]))
	if headBytes > size || blobBytes > size-headBytes || headBytes != entryHeadBytes+pad8(pathBytes) {
		return p, 0, false
	}
	n = headBytes + blobBytes
	p.Blob = Blob(b[headBytes:n:n])
	if xxh3.Hash(b[8:n]) != word(0) || p.Blob.check() != nil {
		return p, 0, false
	}
	p.Codec = binary.LittleEndian.Uint32(b[56:])
	p.Object = storage.Object{
		Path: string(b[entryHeadBytes : entryHeadBytes+pathBytes]), SizeBytes: int64(word(24)),
		Version: storage.Version{ModTimeNanos: int64(word(32)), Inode: word(40), ChangeTimeNanos: int64(word(48))},
	}
	return p, n, true
}

// Build is an index under construction. Finished shards go to a journal in the index directory, so
// that the next build can continue an interrupted one: Find returns what such builds have left. If
// the directory can't be written, everything is in memory.
//
//	b := store.Begin(format, usable)
//	defer b.Close()
//	b.Find(object)           // for each shard that is wanted
//	b.Add(i, shard)          // for each that was not found
//	b.Added(set)             // once, after all were added
//	b.Seal(where, content)   // at the end
//
// Several processes may each build a part (BeginPart), without Seal.
type Build struct {
	store    *Store
	own      *journal
	left     []*os.File // journals of interrupted builds, locked
	maps     []*mapping // of these, and of its own journal
	found    map[storage.Object]Shard
	isStored bool // sealed, in the index directory
}

// Begin begins a build of shards in a format. usable reports whether a shard that an interrupted
// build, or one of another process, has finished may be used; nil for none.
func (s *Store) Begin(format string, usable func(Blob) bool) *Build {
	b := &Build{store: s, own: newJournal(s, format), left: s.abandoned(".journal"), found: map[storage.Object]Shard{}}
	if usable == nil {
		return b
	}
	mine := map[string]bool{}
	for _, f := range b.left {
		mine[f.Name()] = true
		if m, err := s.mapWhole(f, false); err == nil {
			b.take(m, usable)
		}
	}
	// Whole entries in the journals of living processes count, too. If a file system has no locks,
	// or refuses them, all journals are read this way.
	b.takeOthers(mine, usable)
	return b
}

// BeginPart begins a build of some of a dataset's shards, concurrently with those of other
// processes. Shards that they have finished are found and remain in their journals; added shards
// remain after Close, for the build that seals. Shards in another format are not found.
func (s *Store) BeginPart(format string, usable func(Blob) bool) *Build {
	b := &Build{store: s, own: newJournal(s, format), found: map[storage.Object]Shard{}}
	b.takeOthers(nil, usable)
	return b
}

// takeOthers takes the whole entries of journals that are not locked by this build.
func (b *Build) takeOthers(mine map[string]bool, usable func(Blob) bool) {
	s := b.store
	for _, path := range s.files(s.name+".", ".journal") {
		if mine[path] {
			continue
		}
		f, err := s.openStored(path)
		if err != nil {
			continue
		}
		if m, err := s.mapJournal(f, false); err == nil {
			b.take(m, usable)
		}
		_ = f.Close()
	}
}

// take adds a journal's shards to found, unless it is of another version or format.
func (b *Build) take(m *mapping, usable func(Blob) bool) {
	b.maps = append(b.maps, m)
	entries, err := readJournal(m.data, b.own.head)
	if err != nil {
		return
	}
	for _, p := range entries {
		if usable(p.Blob) {
			b.found[p.Object] = p
		}
	}
}

// Stays reports whether the added shards are in the index directory, i.e. it could be written. It
// must be called after Added.
func (b *Build) Stays() bool { return !b.own.inMemory() }

// Find returns a shard that another build has finished, if the object has not changed since. Its
// blob is valid until Close.
func (b *Build) Find(o storage.Object) (s Shard, found bool) {
	s, found = b.found[o]
	return s, found
}

// Add stores a finished shard; i is its number in the build. It may be called concurrently.
func (b *Build) Add(i int, s Shard) error { return b.own.append(i, s) }

// Added calls set with the number, codec and blob of each shard that was added. The blob is in the
// journal's mapping, and valid until Close. No more shards can be added.
func (b *Build) Added(set func(i int, codec uint32, blob Blob)) error {
	maps, err := b.own.blobs(set)
	b.maps = append(b.maps, maps...)
	return err
}

// Seal writes the index, to memory if necessary, and opens it. where names the dataset in messages.
func (b *Build) Seal(where string, c Content) (*Image, error) {
	sealing, err := newSealing(c, b.store.key)
	if err != nil {
		return nil, err
	}
	m, f, err := b.store.seal(sealing, "index", b.own.inMemory())
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", where, err)
	}
	stored := f != nil
	if stored {
		_ = f.Close()
	}
	i, err := openMapped(m, b.store.key)
	if err != nil {
		return nil, fmt.Errorf("the index of %s that was just written %w: check the disk of %s", where, err, b.store.dir)
	}
	if b.isStored = stored; stored {
		b.store.remember(sealing.fingerprint, c.Lines)
	}
	return i, nil
}

// Close ends the build. The added shards remain for the next one, unless the index is now in the
// index directory: then everything that interrupted builds have left is removed.
func (b *Build) Close() {
	b.own.close(!b.isStored)
	if b.isStored {
		for _, f := range b.left {
			_ = os.Remove(f.Name())
		}
		b.store.clean(".tmp")
	}
	for _, m := range b.maps {
		_ = m.Close()
	}
	for _, f := range b.left {
		_ = f.Close() // this unlocks it
	}
}
