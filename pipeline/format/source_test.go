package format_test

import (
	stdtar "archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// portioned is a file of a storage with Portions of its own.
type portioned struct {
	counted
	portions format.Portions
}

func (p *portioned) Portions() format.Portions { return p.portions }

// If a request costs as much as reading a MiB, members of 100 kB are read through; if it costs
// nothing, only the headers of small ones are read.
func TestShardIsReadInPreferredPortionsOfStorage(t *testing.T) {
	large, small := archive(t, 300, 100_000, false), archive(t, 3000, 11_000, false)
	on := &portioned{counted{bytes: large}, format.Portions{ReadBytes: 4 << 20, SkipBytes: 1 << 20, HeaderBytes: 64 << 10}}
	n, _ := scanned(t, tar.Format{}, nil, on, int64(len(large)))
	require.Equal(t, 300, n)
	require.Equal(t, 4<<20, slices.Max(on.reads))
	require.LessOrEqual(t, len(on.reads), len(large)>>22+8)
	require.GreaterOrEqual(t, on.total, int64(len(large)/10*9), "next to all of it")

	headers := &portioned{counted{bytes: small}, format.Portions{ReadBytes: 4 << 10, SkipBytes: 1, HeaderBytes: 1 << 10}}
	n, _ = scanned(t, tar.Format{}, nil, headers, int64(len(small)))
	require.Equal(t, 3000, n)
	require.LessOrEqual(t, slices.Max(headers.reads), 4<<10)
	require.Less(t, headers.total, int64(len(small)/4))

	far := &portioned{counted{bytes: large}, format.Portions{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 64 << 10}}
	scanned(t, tar.Format{}, nil, far, int64(len(large)))
	require.Less(t, far.total, int64(len(large)*3/4), "headers, with what stands behind them")
	require.Greater(t, far.total, int64(len(large)/5))
}

// The result does not depend on the portions.
func TestPortionsDoNotChangeResult(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":      {tar.Format{}, archive(t, 40, 30_000, true)},
		"tfrecord": {tfrecord.Format{}, frames(200, 5_000)},
	} {
		t.Run(name, func(t *testing.T) {
			extents := func(raw *portioned, size int) (found []format.Extent) {
				_, err := format.Scan(context.Background(), c.format, nil, raw, int64(size), func(e format.Extent) error {
					e.Growth = slices.Clone(e.Growth)
					found = append(found, e)
					return nil
				}, nil)
				require.NoError(t, err)
				return found
			}
			scan := func(p format.Portions) []format.Extent {
				return extents(&portioned{counted{bytes: c.shard}, p}, len(c.shard))
			}
			want := scan(format.Portions{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10})
			require.GreaterOrEqual(t, len(want), 40)
			rapid.Check(t, func(t *rapid.T) {
				p := format.Portions{
					ReadBytes: rapid.IntRange(4<<10, 8<<20).Draw(t, "read"), SkipBytes: rapid.Int64Range(1, 1<<20).Draw(t, "skip"),
					HeaderBytes: 1 << rapid.IntRange(10, 20).Draw(t, "header"),
				}
				require.Equal(t, want, scan(p))
			})
		})
	}
}

// inMemory is a file of which some bytes are in memory. holds reports whether they are, and gives
// whether they can be read from there: they may be evicted between the two.
type inMemory struct {
	counted
	holds, gives func(off, n int64) bool
	resident     int64 // bytes that were read from memory
}

func (m *inMemory) Holds(off, n int64) bool { return m.holds(off, n) }

func (m *inMemory) ReadResident(p []byte, off int64) bool {
	if !m.gives(off, int64(len(p))) {
		clear(p) // undefined
		return false
	}
	m.resident += int64(copy(p, m.bytes[off:]))
	return true
}

func always(int64, int64) bool { return true }
func never(int64, int64) bool  { return false }

func TestOnlyHeadersOfCachedShardAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":             {tar.Format{}, archive(t, 1000, 11_000, false)},
		"tar with labels": {tar.Format{}, archive(t, 1000, 11_000, true)},
		"tfrecord":        {tfrecord.Format{}, frames(1000, 11_000)},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &inMemory{counted: counted{bytes: c.shard}, holds: always, gives: always}
			n, s := scanned(t, c.format, nil, raw, int64(len(c.shard)))
			require.Equal(t, 1000, n)
			require.Nil(t, s.Damage)
			require.LessOrEqual(t, len(raw.reads), 2, "until it is known how much is passed over")
			require.Less(t, raw.total+raw.resident, int64(len(c.shard)/4))
		})
	}
}

func TestUncachedShardIsReadAsUsual(t *testing.T) {
	for name, size := range map[string]int{"in portions": 11_000, "headers": 100_000} {
		t.Run(name, func(t *testing.T) {
			shard := archive(t, 500, size, true)
			plain := &counted{bytes: shard}
			scanned(t, tar.Format{}, nil, plain, int64(len(shard)))
			cold := &inMemory{counted: counted{bytes: shard}, holds: never, gives: never}
			scanned(t, tar.Format{}, nil, cold, int64(len(shard)))
			require.Equal(t, plain.reads, cold.reads)
			gone := &inMemory{counted: counted{bytes: shard}, holds: always, gives: never}
			scanned(t, tar.Format{}, nil, gone, int64(len(shard)))
			require.Equal(t, plain.reads, gone.reads, "it was evicted meanwhile")
		})
	}
}

func TestSmallCachedRecordsAreReadInLargePortions(t *testing.T) {
	shard := archive(t, 3000, 700, false)
	raw := &inMemory{counted: counted{bytes: shard}, holds: always, gives: always}
	scanned(t, tar.Format{}, nil, raw, int64(len(shard)))
	require.Zero(t, raw.resident)
}

func TestCachedDataDoesNotAffectExtents(t *testing.T) {
	extents := func(t require.TestingT, tested format.Format, raw interface {
		ReadAt([]byte, int64) (int, error)
	}, size int64) (list []format.Extent, damage string) {
		s, err := format.Scan(context.Background(), tested, nil, raw, size, func(e format.Extent) error {
			e.Growth = nil
			list = append(list, e)
			return nil
		}, nil)
		require.NoError(t, err)
		if s.Damage != nil {
			damage = s.Damage.Error()
		}
		return list, damage
	}
	shards := [][]byte{
		archive(t, 200, 4_000, true), archive(t, 200, 12_000, true), archive(t, 100, 40_000, false), frames(300, 9_000),
	}
	rapid.Check(t, func(t *rapid.T) {
		which := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
		var format format.Format = tar.Format{}
		if which == 3 {
			format = tfrecord.Format{}
		}
		shard := shards[which]
		shard = shard[:rapid.IntRange(1, len(shard)).Draw(t, "size")]
		seed := rapid.Uint64().Draw(t, "seed")
		some := func(share uint64) func(off, n int64) bool {
			return func(off, _ int64) bool {
				seed = seed*6364136223846793005 + 1442695040888963407
				return seed>>33%8 < share
			}
		}
		raw := &inMemory{counted: counted{bytes: shard}, holds: some(6), gives: some(7)}
		want, wantDamage := extents(t, format, bytes.NewReader(shard), int64(len(shard)))
		got, damage := extents(t, format, raw, int64(len(shard)))
		require.Equal(t, want, got)
		require.Equal(t, wantDamage, damage)
	})
}
