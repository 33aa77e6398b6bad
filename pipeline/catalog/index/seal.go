package index

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Shard is one shard of an index. The blob may lie in a mapping.
type Shard struct {
	Object storage.Object
	Codec  uint32 // its number (package formats); 0 for none
	Blob   Blob
}

// Content is everything that an index says.
type Content struct {
	// Format is the format with its parameters, as text. Shards of another one are
	// not used again.
	Format string
	Keyed  bool                  // all blobs have key hashes
	Shards []Shard               // in dataset order
	Judged []storage.Object      // files that were opened and are no shards
	Lines  func(io.Writer) error // writes the text whose SHA-256 is the dataset's fingerprint
}

// sealing is a content that is being written.
type sealing struct {
	Content
	key         Key
	fingerprint [32]byte
}

func newSealing(c Content, key Key) (*sealing, error) {
	h := sha256.New()
	if err := c.Lines(h); err != nil {
		return nil, err
	}
	return &sealing{Content: c, key: key, fingerprint: [32]byte(h.Sum(nil))}, nil
}

// write writes the sealed index to f, which is empty.
func (s *sealing) write(f *os.File) error {
	h, pathsAt := s.header()
	w := &summingWriter{w: bufio.NewWriterSize(f, 1<<20)}
	if _, err := w.w.Write(make([]byte, imageHeaderBytes)); err != nil {
		return err
	}
	w.at = imageHeaderBytes
	s.writeTable(w, &h, pathsAt)
	s.writeStarts(w, &h)
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
	w.write(sums)
	if w.err != nil {
		return w.err
	}
	if err := w.w.Flush(); err != nil {
		return err
	}
	_, err := f.WriteAt(h.marshal(), 0)
	return err
}

// header computes where every part will lie, and where the path of each shard.
func (s *sealing) header() (imageHeader, []uint64) {
	h := imageHeader{key: s.key, fingerprint: s.fingerprint, shards: uint64(len(s.Shards))}
	if s.Keyed {
		h.keyed = 1
	}
	h.tableAt = imageHeaderBytes
	h.startsAt = h.tableAt + h.shards*shardEntryBytes
	h.pathsAt = h.startsAt + (h.shards+1)*8
	paths := make([]uint64, len(s.Shards))
	at := h.pathsAt
	var blobs uint64
	for i := range s.Shards {
		b := s.Shards[i].Blob.Header()
		h.records += b.Records
		h.streamBytes += uint64(b.StreamBytes)
		paths[i] = at
		at += uint64(len(s.Shards[i].Object.Path))
		blobs += uint64(len(s.Shards[i].Blob))
	}
	h.judgedAt = pad8(at)
	h.judgedBytes = uint64(len(marshalJudged(s.Judged)))
	h.formatAt = pad8(h.judgedAt + h.judgedBytes)
	h.formatBytes = uint64(len(s.Format))
	h.blobsAt = pad8(h.formatAt + h.formatBytes)
	h.sumsAt = h.blobsAt + blobs
	return h, paths
}

func (s *sealing) writeTable(w *summingWriter, h *imageHeader, paths []uint64) {
	blobAt := h.blobsAt
	var e [shardEntryBytes]byte
	for i := range s.Shards {
		p := &s.Shards[i]
		b := binary.LittleEndian.AppendUint64(e[:0], paths[i])
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

func (s *sealing) writeStarts(w *summingWriter, h *imageHeader) {
	var first uint64
	var b [8]byte
	for i := range s.Shards {
		binary.LittleEndian.PutUint64(b[:], first)
		w.write(b[:])
		first += s.Shards[i].Blob.word(0)
	}
	binary.LittleEndian.PutUint64(b[:], h.records)
	w.write(b[:])
}

// idPrefix is the first half of the IDs of a shard's records (ORDER.md, Record
// identity).
func idPrefix(path string) uint64 {
	var text [256]byte // most paths fit
	sum := sha256.Sum256(append(append(text[:0], "lsiofs/1 shard "...), path...))
	return binary.BigEndian.Uint64(sum[:])
}

// summingWriter writes and takes the checksum of each segment on the way. Its
// error is sticky.
type summingWriter struct {
	w    *bufio.Writer
	at   uint64 // offset in the file of the next byte
	hash xxh3.Hasher
	held int // bytes in hash
	sums []byte
	err  error
}

func (w *summingWriter) write(p []byte) {
	if w.err != nil {
		return
	}
	if _, w.err = w.w.Write(p); w.err != nil {
		return
	}
	w.at += uint64(len(p))
	for len(p) > 0 {
		n := min(len(p), segmentBytes-w.held)
		_, _ = w.hash.Write(p[:n])
		p = p[n:]
		if w.held += n; w.held == segmentBytes {
			w.cut()
		}
	}
}

func (w *summingWriter) writeString(s string) {
	if w.err == nil && len(s) > 0 {
		w.write([]byte(s))
	}
}

func (w *summingWriter) padTo(at uint64) {
	if at > w.at {
		w.write(make([]byte, at-w.at))
	}
}

func (w *summingWriter) cut() {
	w.sums = binary.LittleEndian.AppendUint64(w.sums, w.hash.Sum64())
	w.hash.Reset()
	w.held = 0
}

// finish gives the checksums of all that was written.
func (w *summingWriter) finish() []byte {
	if w.held > 0 {
		w.cut()
	}
	return w.sums
}

// seal writes a sealed index to the index directory, by the end of a name, or to memory
// where inMemory says so or the directory fails, and maps it. f is the file that is
// mapped, nil where it is in memory; the caller closes it.
func (s *Store) seal(content *sealing, name string, inMemory bool) (m *mapping, f *os.File, err error) {
	if s.dir != "" && !inMemory {
		if m, f, err = s.sealInDir(content, name); err == nil {
			return m, f, nil
		}
		s.log.Warn("index can't be stored: it is kept in memory and built anew by the next run; free space there or name another directory with --index-dir",
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
		err = s.publish(f, name)
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
