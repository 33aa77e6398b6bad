package lc0_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// naive indexes a game that is not compressed.
func naive(shard []byte, check bool) formattest.Outcome {
	damaged := formattest.Outcome{Damaged: true}
	if len(shard) < 4 {
		return damaged
	}
	version := binary.LittleEndian.Uint32(shard)
	size := sizes[version]
	if size == 0 || len(shard)%size != 0 {
		return damaged
	}
	o := formattest.Outcome{Kind: fmt.Sprintf("version %d", version)}
	for at := 0; at < len(shard); at += size {
		if check && !canBe(shard[at:at+size], version) {
			return damaged
		}
		o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(size)})
	}
	return o
}

// canBe is --lc0-check, number by number.
func canBe(f []byte, version uint32) bool {
	float := func(at int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(f[at:])))
	}
	good := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	if binary.LittleEndian.Uint32(f) != version {
		return false
	}
	legal := false
	for i := range 1858 {
		p := float(policyAt(version) + 4*i)
		if !good(p) {
			return false
		}
		legal = legal || p > 0 || p == 0 && version > 3
	}
	values := map[uint32]int{4: 4, 5: 7, 6: 12, 7: 12}[version]
	for i := range values {
		if !good(float(valuesAt(version) + 4*i)) {
			return false
		}
	}
	if version < 6 {
		r := int8(f[valuesAt(version)-1])
		return legal && r >= -1 && r <= 1
	}
	if !good(float(valuesAt(version) + 68)) {
		return false
	}
	for _, i := range []int{7, 8} {
		if r := float(valuesAt(version) + 4*i); r < -1 || r > 1 {
			return false
		}
	}
	return legal
}

func drawGame(t *rapid.T) []byte {
	version := rapid.Uint32Range(2, 8).Draw(t, "version")
	if sizes[version] == 0 {
		return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
	}
	g := game(version, rapid.IntRange(0, 5000).Draw(t, "first"), rapid.IntRange(0, 3).Draw(t, "frames"))
	for range rapid.IntRange(0, 2).Draw(t, "values") {
		if len(g) > 0 {
			at := rapid.IntRange(0, len(g)/4-1).Draw(t, "at")
			put(g, 4*at, rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(-1)), 2, -2, 0}).Draw(t, "value"))
		}
	}
	return g
}

func TestSuite(t *testing.T) {
	formattest.Suite{
		Format: lc0.New(spec.Format{Name: "lc0", Lc0Check: true}),
		Shards: []formattest.Shard{{Name: "a game of one frame", Bytes: frame(6, 7)}},
		Naive:  func(shard []byte) formattest.Outcome { return naive(shard, true) },
		Draw:   drawGame,
		Whole:  true,
	}.Run(t)
}

func TestRandomGamesMatchNaiveParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGame(t)
		g = g[:len(g)-rapid.IntRange(0, min(3, len(g))).Draw(t, "cut off")]
		s := scan(lc0.Format{}, lc0.Game{}, gz(g))
		require.NoError(t, s.err)
		want := naive(g, false)
		require.Equal(t, want.Damaged, len(s.Lost().First) > 0)
		require.Len(t, s.records, len(want.Records))
		if !want.Damaged {
			require.Equal(t, want.Kind, s.Kind)
		}
	})
}

// scanned is the result of an index pass over a file.
type scanned struct {
	records []format.Extent
	format.Summary
	err error
}

func scan(f format.Format, codec format.Codec, raw []byte) (s scanned) {
	s.Summary, s.err = format.Scan(context.Background(), f, codec, bytes.NewReader(raw), int64(len(raw)), func(e format.Extent) error {
		s.records = append(s.records, e)
		return nil
	}, func() { panic("a pass over parts is never begun again") })
	return s
}

// bytesOf reads the kept records back, each part from its own entry.
func bytesOf(t require.TestingT, codec format.Codec, raw []byte, s scanned) []byte {
	var decoded []byte
	for i, m := range s.Members {
		require.Equal(t, int64(len(decoded)), m.DecodedBytes)
		d, err := codec.NewDecoder(bytes.NewReader(raw[m.RawBytes:]), m.RawBytes)
		require.NoError(t, err)
		at, err := d.Next()
		require.NoError(t, err)
		require.Equal(t, m.RawBytes, at)
		part, err := io.ReadAll(decoderReader{d})
		require.NoError(t, err, "part %d", i)
		decoded = append(decoded, part...)
		d.Close()
	}
	require.Equal(t, s.DecodedBytes, int64(len(decoded)))
	var records []byte
	for _, r := range s.records {
		records = append(records, decoded[r.OffsetBytes:r.OffsetBytes+r.SizeBytes]...)
	}
	return records
}

type decoderReader struct{ d format.Decoder }

func (r decoderReader) Read(p []byte) (int, error) { return r.d.Read(p) }

func reasons(l format.Losses) map[string]uint64 {
	m := map[string]uint64{}
	for _, r := range l.Reasons {
		m[r.Text] = r.Count
	}
	return m
}

func TestGameMayHaveSeveralMembersAndTrailingZeros(t *testing.T) {
	g := game(6, 0, 5)
	raw := append(gz(g[:10], nil, g[10:20000], g[20000:]), 0, 0, 0)
	s := scan(lc0.Format{}, lc0.Game{}, raw)
	require.NoError(t, s.err)
	require.Empty(t, s.Lost().First)
	require.Len(t, s.records, 5)
	require.Equal(t, []format.Member{{}}, s.Members, "a game is one part, whatever members it has")
	require.Equal(t, "version 6", s.Kind)
	require.True(t, bytes.Equal(g, bytesOf(t, lc0.Game{}, raw, s)))
}

func TestDamagedGameYieldsNoFrames(t *testing.T) {
	g := gz(game(6, 0, 3))
	flipped := bytes.Clone(g)
	flipped[len(g)-5] ^= 1
	for name, c := range map[string]struct {
		raw    []byte
		reason string
	}{
		"of no frames":         {gz(nil), "the game is empty"},
		"cut off":              {g[:len(g)-20], "the file ends inside a gzip member"},
		"with a flipped bit":   {flipped, "checksum"},
		"with bytes behind it": {append(bytes.Clone(g), "text"...), "neither a member nor zeros"},
		"that is no gzip":      {[]byte("text"), "no gzip member begins here"},
		"of half a frame":      {gz(game(6, 0, 2)[:10000]), "not a multiple"},
		"of another version":   {gz(bytes.Repeat([]byte{9, 0, 0, 0}, 5000)), "not one of 3 to 7"},
		"of two bytes":         {gz([]byte{6, 0}), "not one of 3 to 7"},
	} {
		s := scan(lc0.Format{}, lc0.Game{}, c.raw)
		require.NoError(t, s.err, name)
		require.Empty(t, s.records, name)
		require.Empty(t, s.Members, name)
		require.Zero(t, s.DecodedBytes, name)
		lost := s.Lost()
		require.Len(t, lost.First, 1, name)
		require.ErrorContains(t, lost.First[0], c.reason, name)
		require.Equal(t, int64(0), lost.First[0].RawOffset, name)
	}
}

func TestTarContinuesAfterDamagedGame(t *testing.T) {
	one, two, three := game(6, 0, 3), game(6, 100, 2), game(6, 200, 4)
	bad := gz(two)
	bad[len(bad)-5] ^= 1
	raw := tarOf(t, file{"README", []byte("text")}, file{"a/training.1.gz", gz(one)}, file{"a/training.2.gz", bad},
		file{"a/training.3.gz", gz(nil)}, file{"a/notes.txt", make([]byte, 3000)}, file{"a/.gz", []byte("no game")}, file{"a/training.4.gz", gz(three)})
	s := scan(lc0.Format{}, lc0.Tar{}, raw)
	require.NoError(t, s.err)
	require.Nil(t, s.Damage)
	require.True(t, s.Parts)
	require.Len(t, s.records, 7)
	require.Len(t, s.Members, 2)
	require.Equal(t, int64(len(one)), s.Members[1].DecodedBytes, "the damaged games take no room")
	require.True(t, bytes.Equal(join(one, three), bytesOf(t, lc0.Tar{}, raw, s)))
	require.Equal(t, map[string]uint64{"the gzip member's checksum or size does not match its bytes": 1, "the game is empty": 1}, reasons(s.Losses))
	require.EqualError(t, s.Losses.First[0], fmt.Sprintf("offset %d (compressed member at byte %d of the file): a/training.2.gz: the gzip member's checksum or size does not match its bytes",
		len(one), s.Losses.First[0].RawOffset))
}

func TestDamagedTarEndsAtDamage(t *testing.T) {
	one, two := game(5, 0, 2), game(5, 9, 2)
	raw := tarOf(t, file{"1.gz", gz(one)}, file{"2.gz", gz(two)}, file{"3.gz", gz(two)})
	second := scan(lc0.Format{}, lc0.Tar{}, raw).Members[1].RawBytes
	third := scan(lc0.Format{}, lc0.Tar{}, raw).Members[2].RawBytes
	broken := bytes.Clone(raw)
	broken[third] ^= 1
	s := scan(lc0.Format{}, lc0.Tar{}, broken)
	require.Len(t, s.records, 4)
	require.Equal(t, third, s.Damage.RawOffset)
	require.ErrorContains(t, s.Damage, "checksum")
	require.True(t, bytes.Equal(join(one, two), bytesOf(t, lc0.Tar{}, broken, s)))

	cut := scan(lc0.Format{}, lc0.Tar{}, raw[:second+600])
	require.Len(t, cut.records, 2)
	require.NotNil(t, cut.Damage)
	require.Len(t, cut.Lost().First, 2, "the game and the archive")
}

func TestTruncatedTarYieldsItsCompleteGames(t *testing.T) {
	games := [][]byte{game(6, 0, 1), game(6, 5, 2), game(6, 9, 1)}
	raw := tarOf(t, file{"1.gz", gz(games[0])}, file{"2.gz", gz(games[1])}, file{"3.gz", gz(games[2])})
	whole := scan(lc0.Format{}, lc0.Tar{}, raw)
	for n := 1; n < len(raw)-1024; n += formattest.Stride() {
		s := scan(lc0.Format{}, lc0.Tar{}, raw[:n])
		require.NoError(t, s.err)
		require.LessOrEqual(t, len(s.records), 4)
		for i, m := range s.Members {
			require.Equal(t, whole.Members[i], m)
		}
		if n%512 != 0 {
			require.NotEmpty(t, s.Lost().First, "cut off at %d", n)
		}
		require.True(t, bytes.HasPrefix(join(games...), bytesOf(t, lc0.Tar{}, raw[:n], s)))
	}
}

func TestFlippedBitInTarYieldsNoWrongFrame(t *testing.T) {
	games := [][]byte{game(6, 0, 1), game(6, 5, 2), game(6, 9, 1)}
	raw := tarOf(t, file{"1.gz", gz(games[0])}, file{"2.gz", gz(games[1])}, file{"3.gz", gz(games[2])})
	sound := map[string]bool{}
	for _, g := range games {
		for at := 0; at < len(g); at += 8356 {
			sound[string(g[at:at+8356])] = true
		}
	}
	for i := 0; i < len(raw); i += formattest.Stride() {
		damaged := bytes.Clone(raw)
		damaged[i] ^= 1 << (i % 8)
		s := scan(lc0.Format{}, lc0.Tar{}, damaged)
		if s.err != nil {
			var refused *format.RefusedError
			require.ErrorAs(t, s.err, &refused, "flipped at %d", i)
			continue
		}
		got := bytesOf(t, lc0.Tar{}, damaged, s)
		for at := 0; at < len(got); at += 8356 {
			require.True(t, sound[string(got[at:at+8356])], "flipped at %d", i)
		}
	}
}

func TestGamesOfTwoVersionsInTarAreRefusedByName(t *testing.T) {
	raw := tarOf(t, file{"five.gz", gz(game(5, 0, 2))}, file{"six.gz", gz(game(6, 0, 2))})
	s := scan(lc0.Format{}, lc0.Tar{}, raw)
	var refused *format.RefusedError
	require.ErrorAs(t, s.err, &refused)
	require.ErrorContains(t, s.err, "six.gz has frames of version 6, and five.gz before it of version 5")
}

func TestTarReadErrorsAreNotDamage(t *testing.T) {
	raw := tarOf(t, file{"1.gz", gz(game(6, 0, 2))}, file{"2.gz", gz(game(6, 3, 1))})
	for n := 0; n < len(raw)-1024; n += 50 {
		fault := fmt.Errorf("input/output error at %d", n)
		_, err := format.Scan(context.Background(), lc0.Format{}, lc0.Tar{}, failingAt{raw, int64(n), fault}, int64(len(raw)), func(format.Extent) error { return nil }, func() {})
		require.ErrorIs(t, err, fault)
	}
}

// failingAt fails reads beyond an offset.
type failingAt struct {
	bytes []byte
	at    int64
	err   error
}

func (f failingAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.at {
		return copy(p, f.bytes[off:]), nil
	}
	if off >= f.at {
		return 0, f.err
	}
	return copy(p, f.bytes[off:f.at]), f.err
}

func TestCheckNamesImpossibleValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for version := range sizes {
		for _, c := range []struct {
			name   string
			from   uint32 // version
			spoil  func(f []byte)
			reason string
		}{
			{"a version", 3, func(f []byte) { f[0] = 9 }, "version is not"},
			{"a NaN in the policy", 3, func(f []byte) { put(f, policyAt(version)+4*1857, nan) }, "policy has a value"},
			{"an infinity in the policy", 3, func(f []byte) { put(f, policyAt(version), -inf) }, "policy has a value"},
			{"no legal move", 3, func(f []byte) {
				for i := range 1858 {
					put(f, policyAt(version)+4*i, -1)
				}
			}, "no legal move"},
			{"a NaN in the first value", 4, func(f []byte) { put(f, valuesAt(version), nan) }, "a value is not finite"},
			{"an infinity in the last value that counts", 5, func(f []byte) { put(f, valuesAt(version)+4*6, inf) }, "a value is not finite"},
			{"a NaN in the divergence", 6, func(f []byte) { put(f, valuesAt(version)+68, nan) }, "a value is not finite"},
			{"a result", 6, func(f []byte) { put(f, valuesAt(version)+4*7, 1.5) }, "the result"},
			{"a result of draws", 6, func(f []byte) { put(f, valuesAt(version)+4*8, -1.01) }, "the result"},
		} {
			if version < c.from {
				continue
			}
			g := game(version, 0, 3)
			c.spoil(g[sizes[version] : 2*sizes[version]])
			raw := gz(g)
			s := scan(lc0.New(spec.Format{Lc0Check: true}), lc0.Game{}, raw)
			require.NoError(t, s.err)
			require.Len(t, s.records, 2, "version %d: %s", version, c.name)
			require.Equal(t, int64(2*sizes[version]), s.records[1].OffsetBytes)
			require.Len(t, s.Losses.First, 1)
			require.ErrorContains(t, s.Losses.First[0], "frame 1 of the game: ")
			require.ErrorContains(t, s.Losses.First[0], c.reason)
			require.Equal(t, int64(3*sizes[version]), s.DecodedBytes)
			require.Len(t, scan(lc0.Format{}, lc0.Game{}, raw).records, 3, "without the check")
		}
	}
}

func TestOptionalValuesAreNotChecked(t *testing.T) {
	nan := float32(math.NaN())
	six, three := frame(6, 1), frame(3, 1)
	for i := range 3 { // original q, d, m
		put(six, valuesAt(6)+4*(12+i), nan)
	}
	put(six, valuesAt(6)+72, nan) // reserved
	for _, f := range [][]byte{six, three} {
		require.Len(t, scan(lc0.New(spec.Format{Lc0Check: true}), lc0.Game{}, gz(f)).records, 1)
	}
	result := frame(5, 1)
	result[valuesAt(5)-1] = 0xff // -1
	require.Len(t, scan(lc0.New(spec.Format{Lc0Check: true}), lc0.Game{}, gz(result)).records, 1)
	result[valuesAt(5)-1] = 2
	require.Empty(t, scan(lc0.New(spec.Format{Lc0Check: true}), lc0.Game{}, gz(result)).records)
}

func TestManyDamagedGamesAreCountedAndAFewListed(t *testing.T) {
	g := game(6, 0, 40)
	for i := range 30 {
		g[i*8356] = 4
	}
	g[0] = 6
	s := scan(lc0.New(spec.Format{Lc0Check: true}), lc0.Game{}, gz(g))
	require.Len(t, s.records, 11)
	require.Len(t, s.Losses.First, format.MaxListedLosses)
	require.Equal(t, map[string]uint64{"the frame's version is not that of the game's first frame": 29}, reasons(s.Losses))
}

// sizes are those of pipeline/format/GAMES.md.
var sizes = map[uint32]int{3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}

func policyAt(version uint32) int {
	if version < 5 {
		return 4
	}
	return 8
}

// valuesAt returns the offset of the first byte after a frame's counters.
func valuesAt(version uint32) int { return policyAt(version) + 7432 + 832 + 8 }

// frame returns a valid frame; n makes it differ from others.
func frame(version uint32, n int) []byte {
	f := make([]byte, sizes[version])
	binary.LittleEndian.PutUint32(f, version)
	for i := range 1858 {
		share := float32(-1)
		if version == 3 {
			share = 0
		}
		if i == n%1858 {
			share = 1
		}
		put(f, policyAt(version)+4*i, share)
	}
	binary.LittleEndian.PutUint64(f[policyAt(version)+7432:], uint64(n)*0x9e3779b97f4a7c15)
	return f
}

func put(f []byte, at int, v float32) { binary.LittleEndian.PutUint32(f[at:], math.Float32bits(v)) }

// game returns n consecutive frames.
func game(version uint32, from, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, frame(version, from+i)...)
	}
	return b
}

func gz(parts ...[]byte) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		_, _ = w.Write(p)
		_ = w.Close()
	}
	return b.Bytes()
}

// file is a member of a tar.
type file struct {
	name string
	data []byte
}

// tarOf returns a tar of these files; a name that ends in a slash is a directory.
func tarOf(t require.TestingT, files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write(f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestFramesHaveSizesOfSpecification(t *testing.T) {
	for version, behind := range map[uint32]int{3: 0, 4: 4 * 4, 5: 7 * 4, 6: 15*4 + 4 + 2*2 + 4 + 4, 7: 15*4 + 4 + 2*2 + 4 + 2*4 + 2*2 + 8*4} {
		require.Equal(t, sizes[version], valuesAt(version)+behind, "version %d", version)
	}
}
