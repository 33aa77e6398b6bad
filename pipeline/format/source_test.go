package format_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"testing"

	stdtar "archive/tar"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
)

// counted is a file that counts reads and their bytes.
type counted struct {
	bytes []byte
	reads []int
	total int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads = append(c.reads, len(p))
	c.total += int64(len(p))
	if off+int64(len(p)) > int64(len(c.bytes)) {
		return 0, errors.New("a read beyond the end")
	}
	return copy(p, c.bytes[off:]), nil
}

func scanned(t *testing.T, f format.Format, codec format.Codec, raw io.ReaderAt, size int64) (int, format.Summary) {
	n := 0
	s, err := format.Scan(context.Background(), f, codec, raw, size, func(format.Extent) error { n++; return nil }, func() { n = 0 })
	require.NoError(t, err)
	return n, s
}

// archive returns a tar of members samples of size bytes each, with small members between them if
// labels is set.
func archive(t *testing.T, members, size int, labels bool) []byte {
	var b bytes.Buffer
	w := stdtar.NewWriter(&b)
	add := func(name string, n int) {
		require.NoError(t, w.WriteHeader(&stdtar.Header{Name: name, Mode: 0o644, Size: int64(n)}))
		_, err := w.Write(make([]byte, n))
		require.NoError(t, err)
	}
	for i := range members {
		add(fmt.Sprintf("%06d.bin", i), size)
		if labels {
			add(fmt.Sprintf("%06d.cls", i), 1)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// frames returns a TFRecord file.
func frames(n, size int) []byte {
	var shard []byte
	masked := func(p []byte) uint32 {
		return bits.RotateLeft32(crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)), -15) + 0xa282ead8
	}
	data := make([]byte, size)
	for range n {
		head := binary.LittleEndian.AppendUint64(nil, uint64(size))
		shard = append(shard, binary.LittleEndian.AppendUint32(head, masked(head))...)
		shard = binary.LittleEndian.AppendUint32(append(shard, data...), masked(data))
	}
	return shard
}

func TestOnlyHeadersOfLargeMembersAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":                    {tar.Format{}, archive(t, 300, 100_000, false)},
		"tar with small members": {tar.Format{}, archive(t, 300, 100_000, true)},
		"tfrecord":               {tfrecord.Format{}, frames(300, 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &counted{bytes: c.shard}
			n, s := scanned(t, c.format, nil, raw, int64(len(c.shard)))
			require.Equal(t, 300, n)
			require.Nil(t, s.Damage)
			require.Less(t, raw.total, int64(len(c.shard)/12))
		})
	}
}

func TestSmallMembersAreReadInLargePortions(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":      {tar.Format{}, archive(t, 3000, 3_000, true)},
		"tfrecord": {tfrecord.Format{}, frames(3000, 3_000)},
		"lines":    {lines.Lines(), bytes.Repeat([]byte("a line of text\n"), 600_000)},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &counted{bytes: c.shard}
			scanned(t, c.format, nil, raw, int64(len(c.shard)))
			require.LessOrEqual(t, raw.total, int64(len(c.shard)))
			require.LessOrEqual(t, len(raw.reads), len(c.shard)>>20+6)
		})
	}
}

func TestEndInsideSkippedDataIsDetected(t *testing.T) {
	shard := archive(t, 20, 300_000, false)
	cut := shard[:12*(300_032+512)+512+1000]
	n, s := scanned(t, tar.Format{}, nil, &counted{bytes: cut}, int64(len(cut)))
	require.Equal(t, 12, n, "the header behind record 11 is there")
	require.NotNil(t, s.Damage)
	require.Equal(t, int64(12), s.Damage.Record)
}

func TestShortenedFileIsNotDamage(t *testing.T) {
	shard := archive(t, 20, 3_000, false)
	for _, codec := range []format.Codec{nil, gzip.Codec{}} {
		raw := shard
		if codec != nil {
			raw = formattest.Gzip(shard)
		}
		_, err := format.Scan(context.Background(), tar.Format{}, codec, bytes.NewReader(raw), int64(len(raw))+1000, func(format.Extent) error { return nil }, func() {})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "the file is shorter than it was")
	}
}

func TestRefusalInDamagedMemberIsDamage(t *testing.T) {
	sparse := archive(t, 1, 10, false)
	copy(sparse[156:], "S")
	copy(sparse[148:156], "        ")
	sum := 0
	for _, c := range sparse[:512] {
		sum += int(c)
	}
	copy(sparse[148:], fmt.Sprintf("%06o\x00 ", sum))
	good := formattest.Gzip(archive(t, 2, 10, false)[:2048])
	bad := formattest.Gzip(sparse)

	_, err := format.Scan(context.Background(), tar.Format{}, gzip.Codec{}, bytes.NewReader(append(good, bad...)), int64(len(good)+len(bad)), func(format.Extent) error { return nil }, func() {})
	var refused *format.RefusedError
	require.ErrorAs(t, err, &refused)

	bad[len(bad)-1] ^= 1
	raw := append(good, bad...)
	n, s := scanned(t, tar.Format{}, gzip.Codec{}, bytes.NewReader(raw), int64(len(raw)))
	require.Equal(t, 1, n, "nothing shows that the second sample is whole")
	require.Equal(t, int64(len(good)), s.Damage.RawOffset)
	require.Equal(t, int64(2048), s.DecodedBytes)
}

func TestDamageAfterEndOfTarNamesNoRecord(t *testing.T) {
	tarred := formattest.Gzip(archive(t, 2, 10, false))
	raw := append(tarred, "garbage"...)
	n, s := scanned(t, tar.Format{}, gzip.Codec{}, bytes.NewReader(raw), int64(len(raw)))
	require.Equal(t, 2, n)
	require.Equal(t, int64(-1), s.Damage.Record)
	require.Equal(t, int64(len(tarred)), s.Damage.RawOffset)
	require.EqualError(t, s.Damage, fmt.Sprintf("offset 3072 (compressed member at byte %d of the file): the bytes after the last gzip member are neither a member nor zeros", len(tarred)))
}

func TestManySmallShardsReuseTheirDecoders(t *testing.T) {
	raw := formattest.Gzip([]byte("one\ntwo\n"))
	src := bytes.NewReader(raw)
	scan := func() { scanned(t, lines.Lines(), gzip.Codec{}, src, int64(len(raw))) }
	scan()
	require.Less(t, testing.AllocsPerRun(50, scan), 30.0)
}

func TestDecodedRefusesEntryBeyondFile(t *testing.T) {
	_, err := format.NewDecoded(gzip.Codec{}, bytes.NewReader(nil), 10, format.Entry{RawBytes: 11})
	require.ErrorContains(t, err, "entry at byte 11 of a file of 10 bytes")
}
