package index

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Shard is one shard of an index. The blob may be part of a mapping.
type Shard struct {
	Object storage.Object
	Codec  uint32 // its number (package formats); 0 for none
	Blob   Blob
}

// Content is the full content of an index.
type Content struct {
	// Format is the format with its parameters, as text. Shards of another format are not reused.
	Format string
	Keyed  bool                  // all blobs have key hashes
	Shards []Shard               // in dataset order
	Judged []storage.Object      // files that were opened and are not shards
	Lines  func(io.Writer) error // writes the text whose SHA-256 is the dataset's fingerprint
}

// sealing is a content that is being written.
type sealing struct {
	Content
	key         Key
	fingerprint [32]byte
	// again means that the index is simply rebuilt if a crash of the machine loses it or a part of
	// it, which its checksums show: it is not synced.
	again bool
}

func newSealing(c Content, key Key) (*sealing, error) {
	h := sha256.New()
	if err := c.Lines(h); err != nil {
		return nil, err
	}
	return &sealing{Content: c, key: key, fingerprint: [32]byte(h.Sum(nil))}, nil
}

// FingerprintOf returns the SHA-256 of the text that lines writes.
func FingerprintOf(lines func(io.Writer) error) [32]byte {
	h := sha256.New()
	_ = lines(h) // a hash returns no errors
	return [32]byte(h.Sum(nil))
}

// write writes the sealed index to f, which is empty.
func (s *sealing) write(f *os.File) error {
	h, places := s.header()
	if _, err := f.Write(make([]byte, imageHeaderBytes)); err != nil {
		return err
	}
	w := newSummingWriter(f, h.sumsAt)
	s.writeTable(w, &h, places)
	s.writeStarts(w, &h, places)
	w.padTo(h.pathsAt)
	for i := range s.Shards {
		w.writeString(s.Shards[i].Object.Path)
	}
	w.padTo(h.judgedAt)
	w.write(marshalJudged(s.Judged))
	w.padTo(h.formatAt)
	w.writeString(s.Format)
	w.padTo(h.blobsAt)
	for i := range s.Shards {
		w.write(s.Shards[i].Blob)
	}
	w.padTo(h.sumsAt)
	sums := w.finish()
	h.sumsHash = xxh3.Hash(sums)
	h.fileBytes = h.sumsAt + uint64(len(sums))
	if w.err != nil {
		return w.err
	}
	if _, err := f.Write(sums); err != nil {
		return err
	}
	_, err := f.WriteAt(h.marshal(), 0)
	return err
}

// placed is the offset of a shard's path, and the number of its first record.
type placed struct{ pathAt, first uint64 }

// header computes the offset of every part, and each shard's place. Blobs may be anywhere in
// memory, so it reads each only once.
func (s *sealing) header() (imageHeader, []placed) {
	h := imageHeader{key: s.key, fingerprint: s.fingerprint, shards: uint64(len(s.Shards))}
	if s.Keyed {
		h.keyed = 1
	}
	h.tableAt = imageHeaderBytes
	h.startsAt = h.tableAt + h.shards*shardEntryBytes
	h.pathsAt = h.startsAt + (h.shards+1)*8
	places := make([]placed, len(s.Shards))
	at := h.pathsAt
	var blobs uint64
	for i := range s.Shards {
		b := s.Shards[i].Blob
		places[i] = placed{at, h.records}
		h.records += b.records()
		h.streamBytes += uint64(b.StreamBytes())
		at += uint64(len(s.Shards[i].Object.Path))
		blobs += uint64(len(b))
	}
	h.judgedAt = pad8(at)
	h.judgedBytes = uint64(len(marshalJudged(s.Judged)))
	h.formatAt = pad8(h.judgedAt + h.judgedBytes)
	h.formatBytes = uint64(len(s.Format))
	h.blobsAt = pad8(h.formatAt + h.formatBytes)
	h.sumsAt = h.blobsAt + blobs
	return h, places
}

func (s *sealing) writeTable(w *summingWriter, h *imageHeader, places []placed) {
	blobAt := h.blobsAt
	var e [shardEntryBytes]byte
	for i := range s.Shards {
		p := &s.Shards[i]
		b := binary.LittleEndian.AppendUint64(e[:0], places[i].pathAt)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Object.Path)))
		b = binary.LittleEndian.AppendUint32(b, p.Codec)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Object.SizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(p.Object.Version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, p.Object.Version.Inode)
		b = binary.LittleEndian.AppendUint64(b, blobAt)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(p.Blob)))
		b = binary.LittleEndian.AppendUint64(b, idPrefix(p.Object.Path))
		w.write(binary.LittleEndian.AppendUint64(b, uint64(p.Object.Version.ChangeTimeNanos)))
		blobAt += uint64(len(p.Blob))
	}
}

func (s *sealing) writeStarts(w *summingWriter, h *imageHeader, places []placed) {
	var b [8]byte
	for i := range places {
		binary.LittleEndian.PutUint64(b[:], places[i].first)
		w.write(b[:])
	}
	binary.LittleEndian.PutUint64(b[:], h.records)
	w.write(b[:])
}

// idPrefix returns the first half of the IDs of a shard's records (SELECTION.md in pipeline/order).
func idPrefix(path string) uint64 {
	var text [256]byte // most paths fit
	sum := sha256.Sum256(append(append(text[:0], "lsiofs/1 shard "...), path...))
	return binary.BigEndian.Uint64(sum[:])
}

// summingWriter writes segment by segment, and computes the checksum of each. Its error is sticky.
type summingWriter struct {
	w       io.Writer
	at      uint64 // offset in the file of the next byte
	segment []byte // the current one, not written yet
	sums    []byte
	err     error
}

// newSummingWriter returns a writer for everything after the header, up to sumsAt.
func newSummingWriter(w io.Writer, sumsAt uint64) *summingWriter {
	return &summingWriter{w: w, at: imageHeaderBytes, segment: make([]byte, 0, max(min(segmentBytes, sumsAt-imageHeaderBytes), 1))}
}

func (w *summingWriter) write(p []byte) {
	w.at += uint64(len(p))
	for len(p) > cap(w.segment)-len(w.segment) {
		n := cap(w.segment) - len(w.segment)
		w.segment = append(w.segment, p[:n]...)
		p = p[n:]
		w.cut()
	}
	w.segment = append(w.segment, p...)
}

func (w *summingWriter) writeString(s string) {
	if len(s) > cap(w.segment)-len(w.segment) {
		w.write([]byte(s))
		return
	}
	w.at += uint64(len(s))
	w.segment = append(w.segment, s...)
}

func (w *summingWriter) padTo(at uint64) {
	if at > w.at {
		w.write(make([]byte, at-w.at))
	}
}

// cut ends a segment.
func (w *summingWriter) cut() {
	w.sums = binary.LittleEndian.AppendUint64(w.sums, xxh3.Hash(w.segment))
	if w.err == nil {
		_, w.err = w.w.Write(w.segment)
	}
	w.segment = w.segment[:0]
}

// finish returns the checksums of everything written.
func (w *summingWriter) finish() []byte {
	if len(w.segment) > 0 {
		w.cut()
	}
	return w.sums
}

// seal writes a sealed index to the index directory under a name with this ending, or to memory if
// inMemory is set or the directory fails, and maps it. f is the mapped file, nil if it is in
// memory; the caller closes it.
func (s *Store) seal(content *sealing, name string, inMemory bool) (m *mapping, f *os.File, err error) {
	if s.dir != "" && !inMemory {
		if m, f, err = s.sealInDir(content, name); err == nil {
			return m, f, nil
		}
		s.log.Warn("index can't be stored: it is kept in memory and built again by the next run; free space there or name another directory with --index-dir",
			"dir", s.dir, "error", err)
	}
	memory, err := memoryFile()
	if err != nil {
		return nil, nil, err
	}
	defer memory.Close()
	if err := content.write(memory); err != nil {
		return nil, nil, err
	}
	m, err = s.mapWhole(memory, true)
	return m, nil, err
}

func (s *Store) sealInDir(content *sealing, name string) (*mapping, *os.File, error) {
	f, err := s.create("tmp")
	if err != nil {
		return nil, nil, err
	}
	if err = content.write(f); err == nil {
		publish := s.publish
		if content.again {
			publish = s.rename
		}
		err = publish(f, name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		_ = f.Close()
		return nil, nil, err
	}
	m, err := s.mapWhole(f, false)
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return m, f, nil
}

// snapshotsKept is how many snapshots' indexes are kept besides those in use: that of the current
// epoch, and of the one before.
const snapshotsKept = 2

// snapshotDigits is how many digits of the fingerprint are in the name of a snapshot's index.
const snapshotDigits = 16

func snapshotName(fingerprint [32]byte) string {
	return hex.EncodeToString(fingerprint[:snapshotDigits/2]) + ".index"
}

// LoadSnapshot opens the index of the snapshot with that fingerprint and checks all of it. It
// returns nil if the index is missing or not whole.
func (s *Store) LoadSnapshot(fingerprint [32]byte) *Image {
	if s.dir == "" {
		return nil
	}
	path := s.path(snapshotName(fingerprint))
	i, err := s.loadHeld(path)
	if err == nil && i.Fingerprint() != fingerprint {
		_ = i.Close()
		err = fmt.Errorf("%w: it is of another snapshot", errForeign)
	}
	if err != nil {
		if !errors.Is(err, iofs.ErrNotExist) {
			s.log.Warn("stored index of a snapshot can't be used and is made again", "index", path, "reason", err)
		}
		return nil
	}
	return i
}

// loadHeld opens a snapshot's index, which is not removed as long as the image is open.
func (s *Store) loadHeld(path string) (*Image, error) {
	f, err := s.openStored(path)
	if err != nil {
		return nil, err
	}
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) || !stillNamed(f) {
		_ = f.Close()
		return nil, iofs.ErrNotExist // it is being removed
	}
	m, err := s.mapWhole(f, false)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	i, err := openMapped(m, s.key)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	makeNewest(f)
	i.held = f
	return i, nil
}

// SealSnapshot writes the index of a snapshot under its own name, or to memory if necessary, and
// opens it. where names the dataset in messages. The file depends only on the content. It removes
// the indexes of other snapshots that no process has open, except for the newest.
func (s *Store) SealSnapshot(where string, c Content) (*Image, error) {
	sealing, err := newSealing(c, s.key)
	if err != nil {
		return nil, err
	}
	sealing.again = true
	m, f, err := s.seal(sealing, snapshotName(sealing.fingerprint), false)
	if err != nil {
		return nil, fmt.Errorf("index of a snapshot of %s: %w", where, err)
	}
	i, err := openMapped(m, s.key)
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, fmt.Errorf("the index of a snapshot of %s that was just written %w: check the disk of %s", where, err, s.dir)
	}
	if f != nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_SH) // the lock was exclusive
		makeNewest(f)
		i.held = f
		s.forgetSnapshots()
	}
	return i, nil
}

// snapshots returns the paths of the snapshots' indexes.
func (s *Store) snapshots() (paths []string) {
	for _, p := range s.files(s.name+".", ".index") {
		digits := strings.TrimSuffix(strings.TrimPrefix(p, s.path("")), ".index")
		if raw, err := hex.DecodeString(digits); err == nil && len(raw) == snapshotDigits/2 {
			paths = append(paths, p)
		}
	}
	return paths
}

// forgetSnapshots removes those snapshots' indexes that no process has open, except for the newest.
func (s *Store) forgetSnapshots() {
	for _, path := range beyondNewest(s.snapshots(), snapshotsKept) {
		f, err := s.openStored(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && stillNamed(f) {
			_ = os.Remove(path)
		}
		_ = f.Close()
	}
}
