package units

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/encode"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const most = 8 << 20

func cutter(t *testing.T, name string) *Cutter {
	f, err := formats.New(spec.Format{Name: name})
	require.NoError(t, err)
	c, err := New(f, most)
	require.NoError(t, err)
	return c
}

func all(t *testing.T, c *Cutter, codec format.Codec, shard []byte) (units []Unit) {
	require.NoError(t, c.Each(context.Background(), "shard", codec, bytes.NewReader(shard), int64(len(shard)), func(u Unit) error {
		require.NoError(t, u.Err)
		units = append(units, u)
		return nil
	}))
	return units
}

// together writes units unchanged.
func together(t *testing.T, c *Cutter, codec format.Codec, units []Unit) []byte {
	var b bytes.Buffer
	w, err := c.NewWriter(codec, &b)
	require.NoError(t, err)
	for _, u := range units {
		require.NoError(t, w.Write(u, u.Member))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func encoded(t *testing.T, codec format.Codec, data []byte) []byte {
	var b bytes.Buffer
	w, err := encode.New(codec, &b)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func gz(t *testing.T, data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func game(frames int) []byte {
	b := make([]byte, frames*synthetic.FrameBytes)
	for i := range frames {
		binary.LittleEndian.PutUint32(b[i*synthetic.FrameBytes:], 6)
		b[i*synthetic.FrameBytes+100] = byte(i)
	}
	return b
}

type file struct{ name, data string }

func tarOf(t *testing.T, files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: 0o644}))
		_, err := w.Write([]byte(f.data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Units that pass through unchanged make a shard of the same records, in each format and
// compression.
func TestUnchangedUnitsRebuildSameShard(t *testing.T) {
	long := strings.Repeat("d/", 80)
	lines := "{\"a\": 1}\n\n[2]\r\n" + `{"last": "without an end"}`
	samples := tarOf(t, file{"a.jpg", "1234"}, file{"a.cls", "1"}, file{"LICENSE", "free"}, file{long + "b.jpg", strings.Repeat("x", 1000)}, file{"c.txt", ""})
	frames := tfrecord.AppendFrame(tfrecord.AppendFrame(nil, []byte("one")), nil)
	for name, shard := range map[string][]byte{"jsonl": []byte(lines), "lines": []byte(lines), "tar": samples, "tfrecord": frames} {
		for _, codec := range append(formats.Codecs(), nil) {
			c := cutter(t, name)
			from := encoded(t, codec, shard)
			first := all(t, c, codec, from)
			for i := range first {
				require.Equal(t, i, first[i].Number)
				require.Equal(t, fmt.Sprintf("shard/%d", i), first[i].Name)
				// If a filter returns data unchanged, the member is unchanged, in both ways.
				data, err := c.Data(first[i])
				require.NoError(t, err)
				again, records, err := c.FromData(data)
				require.NoError(t, err)
				require.Equal(t, uint64(1), records)
				require.Equal(t, string(first[i].Member), string(again))
				again, records, err = c.FromFile(c.FileOf(first[i]))
				require.NoError(t, err)
				require.Equal(t, uint64(1), records)
				require.Equal(t, string(first[i].Member), string(again))
			}
			require.Len(t, first, map[string]int{"jsonl": 3, "lines": 3, "tar": 3, "tfrecord": 2}[name])
			second := all(t, c, codec, together(t, c, codec, first))
			require.Equal(t, first, second, "%s %v", name, codec)
		}
	}
}

func TestTarredGamesKeepTheirNames(t *testing.T) {
	c := cutter(t, "lc0")
	long := strings.Repeat("d", 120) + "/training.3.gz"
	shard := tarOf(t, file{"games/training.1.gz", string(gz(t, game(2)))}, file{"README", "no game"},
		file{"training.2.gz", string(gz(t, game(3)))}, file{long, string(gz(t, game(1)))})
	units := all(t, c, lc0.Tar{}, shard)
	require.Len(t, units, 3)
	require.Equal(t, "shard/games/training.1.gz", units[0].Name)
	require.Equal(t, "training.1.gz", units[0].File)
	data, err := c.Data(units[1])
	require.NoError(t, err)
	require.Equal(t, game(3), data)
	member, records, err := c.FromData(data[:2*synthetic.FrameBytes])
	require.NoError(t, err)
	require.Equal(t, uint64(2), records)
	units[1].Member = member
	again := all(t, c, lc0.Tar{}, together(t, c, lc0.Tar{}, units))
	require.Equal(t, units, again)
	_, records, err = c.FromFile(units[0].Member)
	require.NoError(t, err)
	require.Equal(t, uint64(2), records)
}

func TestStandaloneGameIsOneUnit(t *testing.T) {
	c := cutter(t, "lc0")
	shard := gz(t, game(2))
	require.True(t, c.Single(lc0.Game{}))
	require.False(t, c.Single(lc0.Tar{}))
	units := all(t, c, lc0.Game{}, shard)
	require.Equal(t, []Unit{{Name: "shard", File: "shard", Member: shard}}, units)
	require.Equal(t, shard, together(t, c, lc0.Game{}, units))
}

func TestRepliesRefusedByFormat(t *testing.T) {
	for _, tt := range []struct{ format, reply, err string }{
		{"lc0", "", "the game is empty"},
		{"lc0", "\x06\x00\x00\x00 and no whole frame", "not a multiple"},
		{"lc0", "\x09\x00\x00\x00", "version is not one of 3 to 7"},
		{"jsonl", "{\"a\": 1}\n{\"a\": 1\n", `"{\"a\": 1\n" is not a line of JSON`},
		{"jsonl", "\n \n", "it has no line"},
		{"lines", "", "it has no line"},
		{"tar", "no tar", "offset 0"},
		{"tar", string(archiveEnd[:]), "a tar without a sample"},
	} {
		c := cutter(t, tt.format)
		_, _, err := c.FromData([]byte(tt.reply))
		require.ErrorContains(t, err, tt.err, "%s %q", tt.format, tt.reply)
	}
	c := cutter(t, "lc0")
	_, _, err := c.FromFile([]byte("no gzip"))
	require.ErrorContains(t, err, "no gzip member begins here")
	_, _, err = c.FromFile(gz(t, []byte("no game at all")))
	require.ErrorContains(t, err, "version is not one")
}

func TestUnitMayBecomeSeveralRecords(t *testing.T) {
	c := cutter(t, "jsonl")
	member, records, err := c.FromData([]byte("{}\n[1]"))
	require.NoError(t, err)
	require.Equal(t, "{}\n[1]\n", string(member))
	require.Equal(t, uint64(2), records)
}

func TestLargeAndDamagedUnitsAreNamed(t *testing.T) {
	f, err := formats.New(spec.Format{Name: "jsonl"})
	require.NoError(t, err)
	c, err := New(f, 10)
	require.NoError(t, err)
	var errs []string
	each := func(codec format.Codec, shard []byte) error {
		errs = nil
		return c.Each(context.Background(), "s", codec, bytes.NewReader(shard), int64(len(shard)), func(u Unit) error {
			errs = append(errs, fmt.Sprint(u.Err))
			return nil
		})
	}
	require.NoError(t, each(nil, []byte("[1]\n\""+strings.Repeat("x", 20)+"\"\n[2]\n")))
	require.Equal(t, []string{"<nil>", "it has 23 bytes, of at most 10: raise --unit-bytes", "<nil>"}, errs)

	c = cutter(t, "tfrecord")
	frames := tfrecord.AppendFrame(tfrecord.AppendFrame(nil, []byte("one")), []byte("two"))
	frames[12] ^= 1
	require.NoError(t, each(nil, frames))
	require.Equal(t, []string{"the data's crc32c does not match", "<nil>"}, errs)

	var damage *format.CorruptError
	require.ErrorAs(t, each(nil, frames[:len(frames)-1]), &damage)
	require.NoError(t, each(nil, nil))
	require.Empty(t, errs)

	c = cutter(t, "lc0")
	shard := tarOf(t, file{"1.gz", string(gz(t, game(1)))}, file{"2.gz", strings.Repeat("\x00", most+1)}, file{"3.gz", "damaged"})
	require.NoError(t, each(lc0.Tar{}, shard))
	require.Equal(t, []string{"<nil>", "it has 8388609 bytes, of at most 8388608: raise --unit-bytes", "<nil>"}, errs)
	require.ErrorAs(t, each(lc0.Tar{}, shard[:5000]), &damage)
	_, err = c.Data(Unit{Member: []byte("damaged")})
	require.ErrorAs(t, err, &damage)
	bomb := gz(t, make([]byte, most+1))
	_, err = c.Data(Unit{Member: bomb})
	require.ErrorContains(t, err, "it decodes to more than 8388608 bytes")
	require.NoError(t, each(lc0.Game{}, make([]byte, most+1)))
	require.Equal(t, []string{"it has 8388609 bytes, of at most 8388608: raise --unit-bytes"}, errs)
}

func TestFormatsWithoutUnitsAreRefused(t *testing.T) {
	for _, s := range []spec.Format{{Name: "npy"}, {Name: "fixed", RecordBytes: 4}} {
		f, err := formats.New(s.WithDefaults())
		require.NoError(t, err)
		_, err = New(f, most)
		require.ErrorIs(t, err, ErrWhole)
	}
}

func TestConsumerErrorsStopShard(t *testing.T) {
	enough := errors.New("enough")
	shard := []byte("1\n2\n")
	err := cutter(t, "jsonl").Each(context.Background(), "s", nil, bytes.NewReader(shard), 4, func(Unit) error { return enough })
	require.Equal(t, enough, err)
}

func TestShardIsDecodedWhole(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100)
	for _, codec := range append(formats.Codecs(), nil, lc0.Tar{}) {
		shard := encoded(t, codec, data)
		got, err := Whole(codec, bytes.NewReader(shard), int64(len(shard)), 1000)
		require.NoError(t, err)
		require.Equal(t, data, got)
		_, err = Whole(codec, bytes.NewReader(shard), int64(len(shard)), 999)
		require.ErrorContains(t, err, "more than 999 bytes")
	}
}
