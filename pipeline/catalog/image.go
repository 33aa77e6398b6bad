package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// image is a sealed index as it lies in a file, checked. It keeps nothing but
// the bytes, so it costs no heap, whatever its size.
type image struct {
	data []byte
	h    imageHeader
}

const (
	imageMagic       = "lsiofsIX"
	imageVersion     = 3
	imageHeaderBytes = 256
	shardEntryBytes  = 72
	// Checksums are of so many bytes each, so that several cores check a large
	// index, and what is written is not read again.
	segmentBytes = 4 << 20
)

// imageHeader is what a sealed index begins with.
type imageHeader struct {
	fileBytes   uint64
	shards      uint64
	records     uint64
	streamBytes uint64
	keyed       uint64 // 1: every shard has key hashes
	tableAt     uint64 // shards × shardEntryBytes
	startsAt    uint64 // (shards+1) × 8
	pathsAt     uint64
	judgedAt    uint64 // files that were no shards by their content
	judgedBytes uint64
	formatAt    uint64 // the format's parameters, as text
	formatBytes uint64
	blobsAt     uint64
	sumsAt      uint64 // xxh3 of each segment between header and here
	sumsHash    uint64 // xxh3 of those
	key         [32]byte
	fingerprint [32]byte
}

func (h *imageHeader) fields() []*uint64 {
	return []*uint64{&h.fileBytes, &h.shards, &h.records, &h.streamBytes, &h.keyed, &h.tableAt, &h.startsAt, &h.pathsAt,
		&h.judgedAt, &h.judgedBytes, &h.formatAt, &h.formatBytes, &h.blobsAt, &h.sumsAt, &h.sumsHash}
}

func (h *imageHeader) marshal() []byte {
	b := append(make([]byte, 0, imageHeaderBytes), imageMagic...)
	b = binary.LittleEndian.AppendUint64(b, imageVersion)
	for _, f := range h.fields() {
		b = binary.LittleEndian.AppendUint64(b, *f)
	}
	b = append(append(b, h.key[:]...), h.fingerprint[:]...)
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
	if v := binary.LittleEndian.Uint64(b[8:]); v != imageVersion {
		return h, fmt.Errorf("%w: it is of version %d, and this lsiofs reads version %d", errForeign, v, imageVersion)
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
	for _, v := range b[at : imageHeaderBytes-8] {
		if v != 0 {
			return h, errForeign
		}
	}
	return h, nil
}

// openImage checks all of data, its checksums and its structure, and refuses
// what is not whole. After that no accessor can leave data. key is what the
// index was made for.
func openImage(data []byte, key [32]byte) (*image, error) {
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
	m := &image{data: data, h: h}
	if err := m.checkSums(); err != nil {
		return nil, err
	}
	if err := m.checkParts(); err != nil {
		return nil, err
	}
	return m, m.checkShards()
}

// checkSums compares every segment with its checksum, on all cores where there
// are many.
func (m *image) checkSums() error {
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

// checkParts checks that the parts lie where the header says, in order.
func (m *image) checkParts() error {
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

func (m *image) checkShards() error {
	h := &m.h
	if m.start(0) != 0 || m.start(h.shards) != h.records {
		return errDamaged
	}
	for i := range h.shards {
		e := m.entryBytes(i)
		pathAt, pathBytes := binary.LittleEndian.Uint64(e), uint64(binary.LittleEndian.Uint32(e[8:]))
		if pathAt < h.pathsAt || pathAt > h.judgedAt || pathBytes > h.judgedAt-pathAt {
			return errDamaged
		}
		blobAt, blobSize := binary.LittleEndian.Uint64(e[40:]), binary.LittleEndian.Uint64(e[48:])
		if blobAt < h.blobsAt || blobAt > h.sumsAt || blobSize > h.sumsAt-blobAt {
			return errDamaged
		}
		b := m.blob(i)
		if err := b.check(); err != nil {
			return fmt.Errorf("%w: shard %d: %w", errDamaged, i, err)
		}
		bh := b.header()
		if m.start(i) > h.records || m.start(i)+bh.records != m.start(i+1) || uint64(bh.flags&flagKeyed) != h.keyed*flagKeyed {
			return errDamaged
		}
	}
	return nil
}

func (m *image) start(i uint64) uint64 {
	return binary.LittleEndian.Uint64(m.data[m.h.startsAt+8*i:])
}

func (m *image) entryBytes(i uint64) []byte {
	return m.data[m.h.tableAt+i*shardEntryBytes:][:shardEntryBytes]
}

func (m *image) blob(i uint64) blob {
	e := m.entryBytes(i)
	at, n := binary.LittleEndian.Uint64(e[40:]), binary.LittleEndian.Uint64(e[48:])
	return blob(m.data[at : at+n : at+n])
}

// path is a copy: it outlives the image.
func (m *image) path(i uint64) string { return string(m.pathBytes(i)) }

func (m *image) pathBytes(i uint64) []byte {
	e := m.entryBytes(i)
	at := binary.LittleEndian.Uint64(e)
	return m.data[at : at+uint64(binary.LittleEndian.Uint32(e[8:]))]
}

// codec is the number of the shard's codec: 0 for none.
func (m *image) codec(i uint64) uint32 { return binary.LittleEndian.Uint32(m.entryBytes(i)[12:]) }

func (m *image) object(i uint64) storage.Object {
	e := m.entryBytes(i)
	return storage.Object{
		Path:      m.path(i),
		SizeBytes: int64(binary.LittleEndian.Uint64(e[16:])),
		Version: storage.Version{
			ModTimeNanos:    int64(binary.LittleEndian.Uint64(e[24:])),
			ChangeTimeNanos: int64(binary.LittleEndian.Uint64(e[64:])),
			Inode:           binary.LittleEndian.Uint64(e[32:]),
		},
	}
}

func (m *image) idPrefix(i uint64) uint64 { return binary.LittleEndian.Uint64(m.entryBytes(i)[56:]) }

// formatLine is the format's parameters that the shards were cut with.
func (m *image) formatLine() string {
	return string(m.data[m.h.formatAt : m.h.formatAt+m.h.formatBytes])
}
