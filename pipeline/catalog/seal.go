package catalog

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// packed is one shard ready to be sealed. The blob may lie in a mapping.
type packed struct {
	object storage.Object
	codec  uint32
	blob   blob
}

// sealing is everything that a sealed index is made of.
type sealing struct {
	key         [32]byte
	formatLine  string
	keyed       bool
	shards      []packed // in dataset order
	judged      []judged
	fingerprint [32]byte
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
	for i := range s.shards {
		w.writeString(s.shards[i].object.Path)
	}
	w.padTo(h.judgedAt)
	w.write(marshalJudged(s.judged))
	w.padTo(h.formatAt)
	w.writeString(s.formatLine)
	w.padTo(h.blobsAt)
	for i := range s.shards {
		w.write(s.shards[i].blob)
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
	h := imageHeader{key: s.key, fingerprint: s.fingerprint, shards: uint64(len(s.shards))}
	if s.keyed {
		h.keyed = 1
	}
	h.tableAt = imageHeaderBytes
	h.startsAt = h.tableAt + h.shards*shardEntryBytes
	h.pathsAt = h.startsAt + (h.shards+1)*8
	paths := make([]uint64, len(s.shards))
	at := h.pathsAt
	var blobs uint64
	for i := range s.shards {
		b := s.shards[i].blob.header()
		h.records += b.records
		h.streamBytes += uint64(b.streamBytes)
		paths[i] = at
		at += uint64(len(s.shards[i].object.Path))
		blobs += uint64(len(s.shards[i].blob))
	}
	h.judgedAt = pad8(at)
	h.judgedBytes = uint64(len(marshalJudged(s.judged)))
	h.formatAt = pad8(h.judgedAt + h.judgedBytes)
	h.formatBytes = uint64(len(s.formatLine))
	h.blobsAt = pad8(h.formatAt + h.formatBytes)
	h.sumsAt = h.blobsAt + blobs
	return h, paths
}

func (s *sealing) writeTable(w *summingWriter, h *imageHeader, paths []uint64) {
	blobAt := h.blobsAt
	var e [shardEntryBytes]byte
	for i := range s.shards {
		p := &s.shards[i]
		b := binary.LittleEndian.AppendUint64(e[:0], paths[i])
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p.object.Path)))
		b = binary.LittleEndian.AppendUint32(b, p.codec)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.object.SizeBytes))
		b = binary.LittleEndian.AppendUint64(b, uint64(p.object.Version.ModTimeNanos))
		b = binary.LittleEndian.AppendUint64(b, p.object.Version.Inode)
		b = binary.LittleEndian.AppendUint64(b, blobAt)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(p.blob)))
		b = binary.LittleEndian.AppendUint64(b, idPrefix(p.object.Path))
		w.write(binary.LittleEndian.AppendUint64(b, uint64(p.object.Version.ChangeTimeNanos)))
		blobAt += uint64(len(p.blob))
	}
}

func (s *sealing) writeStarts(w *summingWriter, h *imageHeader) {
	var first uint64
	var b [8]byte
	for i := range s.shards {
		binary.LittleEndian.PutUint64(b[:], first)
		w.write(b[:])
		first += s.shards[i].blob.word(0)
	}
	binary.LittleEndian.PutUint64(b[:], h.records)
	w.write(b[:])
}

// idPrefix is the first half of the IDs of a shard's records (ORDER.md, Record
// identity).
func idPrefix(path string) uint64 {
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + path))
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

var _ io.Writer = (*xxh3.Hasher)(nil)
