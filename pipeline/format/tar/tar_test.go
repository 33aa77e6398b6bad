package tar_test

import (
	"bytes"
	"context"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

func TestSuite(t *testing.T) {
	formattest.Suite{Format: tar.Format{}, Shards: shards(), Naive: naive, Draw: draw, EndsAnywhere: true}.Run(t)
}

// shards returns small archives of every kind.
func shards() []formattest.Shard {
	long := strings.Repeat("long/", 30) + "s1"
	var plain, pax, gnuLong, between, prefixes, several archive
	return []formattest.Shard{
		{Name: "two samples", Bytes: plain.file("a/s1.jpg", "jpg").file("a/s1.cls", "1").file("a/s2.jpg", "").file("a/s2.cls", strings.Repeat("2", 600)).end()},
		{Name: "PAX headers", Bytes: pax.ext('g', paxRecord("comment", "x")).
			ext('x', paxRecord("mtime", "1.5")).file("s1.jpg", "jpg").
			ext('x', paxRecord("path", long+".jpg")+paxRecord("size", "3")).file("cut", "jpg", base256(1<<40)).
			ext('x', paxRecord("path", long+".cls")).file("cut", "1").Bytes()},
		{Name: "GNU long names", Bytes: gnuLong.ext('L', long+".jpg\x00").file("cut", "jpg", gnu).
			ext('K', "x\x00").ext('L', long+".cls\x00").file("cut", "1", gnu, base256(1)).end()},
		{Name: "members between samples and inside them", Bytes: between.add(header('5', "a/", 0), "").file("a/s1.jpg", "jpg").
			add(header('2', "a/s1.lnk", 500), "").file("LICENSE", "free").file("a/s1.cls", "1").
			add(header('V', "label", 4), "data").file("__meta__/x.y", "").file(".hidden", "").file("a/s2.cls", "2").
			add(header('1', "a/s2.hard", 9999), "").end()},
		{Name: "prefixes", Bytes: prefixes.file("s1.jpg", "jpg", prefix(strings.Repeat("p", 131))).file("s1.cls", "1", prefix(strings.Repeat("p", 131))).
			file("s2.cls", "1", gnu, prefix("not a prefix")).add(signed(header(0, "s3.\xff\xfe", 1, old)), "3").file("s4.x", "4", prefix(strings.Repeat("p", 155))).end()},
		{Name: "several extension headers", Bytes: several.ext('x', paxRecord("path", "s1.a")).ext('X', paxRecord("mtime", "1")).
			ext('L', "s9.a\x00").file("s8.a", "a").
			ext('L', "s1.b\x00").ext('g', "").ext('x', paxRecord("path", "s7.b")+paxRecord("path", "s1.b")+paxRecord("comment", strings.Repeat("c", 470))).file("s8.b", "b").
			file("s2.a", "").end()},
	}
}

func index(t require.TestingT, shard []byte) ([]formattest.Record, format.Summary, error) {
	var records []formattest.Record
	s, err := format.Scan(context.Background(), tar.Format{}, nil, bytes.NewReader(shard), int64(len(shard)), func(e format.Extent) error {
		records = append(records, formattest.Record{OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes, KeyHash: e.KeyHash, Growth: append([]int64(nil), e.Growth...)})
		return nil
	}, func() {})
	return records, s, err
}

func TestDamage(t *testing.T) {
	wrongSum := header('0', "s2.b", 0)
	wrongSum[0] ^= 1
	for _, c := range []struct {
		name, reason string
		kept         int
		tail         func(a *archive)
	}{
		{"a header whose checksum is wrong", "the header's checksum does not match (at offset 2048)", 1, func(a *archive) { a.Write(wrongSum) }},
		{"a header that is cut off", "the file ends inside a header, after 500 of its 512 bytes", 1, func(a *archive) { a.Write(wrongSum[:500]) }},
		{"a zero block that is cut off", "the file ends inside a header", 1, func(a *archive) { a.Write(make([]byte, 511)) }},
		{"data that are cut off", "the file ends inside a member", 1, func(a *archive) { a.Write(header('0', "s1.b", 5)); a.WriteString("12345") }},
		{"data of the next sample that are cut off", "the file ends inside a member", 2, func(a *archive) { a.Write(header('0', "s2.b", 5)); a.WriteString("1234") }},
		{"a size near 2^63", "the file ends inside a member", 2, func(a *archive) { a.Write(header('0', "s2.b", 0, base256(math.MaxInt64))) }},
		{"a size of nearly 2^63 in whole blocks", "the file ends inside a member", 2, func(a *archive) { a.Write(header('0', "s2.b", 0, base256(math.MaxInt64&^511-512))) }},
		{"a size above 2^63", "the file ends inside a member", 2, func(a *archive) { a.Write(header('0', "s2.b", 0, base256(1<<63))) }},
		{"a size of nearly 2^94", "the file ends inside a member", 2, func(a *archive) {
			a.Write(header('0', "s2.b", 0, field{124, "\xbf" + strings.Repeat("\xff", 11)}))
		}},
		{"a negative size", "size field is not a number", 1, func(a *archive) {
			a.Write(header('0', "s2.b", 0, field{124, strings.Repeat("\xff", 12)}))
		}},
		{"a size that is no octal number", "size field is not a number", 1, func(a *archive) { a.Write(header('0', "s2.b", 0, field{124, "00000000009"})) }},
		{"a PAX size near 2^63", "the file ends inside a member", 2, func(a *archive) { a.ext('x', paxRecord("size", "9223372036854775807")).file("s2.b", "") }},
		{"a PAX size above 2^63", "the file ends inside a member", 2, func(a *archive) { a.ext('x', paxRecord("size", "9223372036854775808")).file("s2.b", "") }},
		{"a PAX size of many digits", "the file ends inside a member", 2, func(a *archive) {
			a.ext('x', paxRecord("size", strings.Repeat("9", 30))).file("s2.b", "")
		}},
		{"a PAX size that is negative", "a PAX header's size is not a number", 1, func(a *archive) { a.ext('x', paxRecord("size", "-1")).file("s2.b", "") }},
		{"a PAX record has a wrong length", "a PAX record has a wrong length", 1, func(a *archive) { a.ext('x', "99 path=a\n").file("s2.b", "") }},
		{"a PAX record whose length overflows", "a PAX record has a wrong length", 1, func(a *archive) { a.ext('x', "99999999999999999999 path=a\n").file("s2.b", "") }},
		{"a PAX record without a newline", "a PAX record has a wrong length", 1, func(a *archive) { a.ext('x', "9 path=a.").file("s2.b", "") }},
		{"a PAX record has no key", "a PAX record has no key", 1, func(a *archive) { a.ext('x', "5 =b\n").file("s2.b", "") }},
		{"a PAX record has no length", "a PAX record has no length", 1, func(a *archive) { a.ext('x', "path=a\n").file("s2.b", "") }},
		{"an extension header before the zero blocks", "no member follows an extension header", 1, func(a *archive) { a.ext('x', paxRecord("path", "s1.c")).end() }},
		{"an extension header at the end of the file", "no member follows an extension header", 1, func(a *archive) { a.ext('L', "s1.c\x00") }},
		{"an extension header that is cut off", "the file ends inside an extension header", 1, func(a *archive) { a.Write(header('x', "x", 600)); a.Write(make([]byte, 512)) }},
		{"an extension header of many GiB", "the file ends inside an extension header", 1, func(a *archive) { a.Write(header('L', "x", 0, base256(1<<50))) }},
		{"an extension header of nearly 2^63 bytes", "the file ends inside an extension header", 1, func(a *archive) { a.Write(header('x', "x", 0, base256(math.MaxInt64))) }},
		{"an extension header of more than 2^63 bytes", "the file ends inside an extension header", 1, func(a *archive) { a.Write(header('K', "x", 0, base256(math.MaxUint64))) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a archive
			a.file("s0.a", "0").file("s1.a", "1")
			c.tail(&a)
			records, s, err := index(t, a.Bytes())
			require.NoError(t, err)
			require.Len(t, records, c.kept)
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(c.kept), s.Damage.Record)
			require.Equal(t, int64(1024*c.kept), s.Damage.OffsetBytes, "the record that is lost begins there")
			require.Contains(t, s.Damage.Reason, c.reason)
		})
	}
}

func TestSizeFieldOfMemberWithoutDataIsIgnored(t *testing.T) {
	for _, size := range []field{base256(1 << 40), base256(math.MaxUint64), {124, strings.Repeat("\xff", 12)}, {124, "not a number"}} {
		for kind := byte('1'); kind <= '6'; kind++ {
			var a archive
			a.file("s1.a", "1")
			a.Write(header(kind, "s1.b", 0, size))
			records, s, err := index(t, a.file("s1.c", "1").end())
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			require.Len(t, records, 1)
			require.Equal(t, int64(512*5), records[0].SizeBytes)
		}
	}
}

// A link's PAX header has the size of its target, as some programs write it.
func TestPAXSizeAddsNoDataToMemberWithoutData(t *testing.T) {
	for kind := byte('1'); kind <= '6'; kind++ {
		shard := new(archive).file("s1.a", "1").ext('x', paxRecord("size", "1000")).add(header(kind, "s1.b", 0), "").file("s1.c", "1").file("s2.a", "1").end()
		records, s, err := index(t, shard)
		require.NoError(t, err)
		require.Nil(t, s.Damage)
		require.Len(t, records, 2)
		require.Equal(t, int64(512*7), records[0].SizeBytes)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		shard        []byte
	}{
		{"a global PAX header that sets path", "sets path", new(archive).ext('g', paxRecord("comment", "c")+paxRecord("path", "x")).file("a.b", "").end()},
		{"a global PAX header that sets size", "sets size", new(archive).ext('g', paxRecord("size", "1")).file("a.b", "").end()},
		{"a GNU sparse member", "a member is sparse", new(archive).file("a.b", "").add(header('S', "b.c", 0, gnu), "").end()},
		{"a sparse member of PAX format 1.0", "a member is sparse", new(archive).ext('x', paxRecord("GNU.sparse.major", "1")).file("a.b", "").end()},
		{"a sparse member of PAX format 0.1", "a member is sparse", new(archive).ext('x', paxRecord("GNU.sparse.map", "0,1")).file("a.b", "").end()},
		{"a large extension header", "more than 1 MiB", new(archive).ext('x', paxRecord("comment", strings.Repeat("c", 1<<20))).file("a.b", "").end()},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := index(t, c.shard)
			var refused *format.RefusedError
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Reason, c.reason)
		})
	}
}

func TestEnds(t *testing.T) {
	body := new(archive).file("s1.a", "1").file("s2.a", "2").Bytes()
	for _, c := range []struct {
		name string
		tail []byte
	}{
		{"two zero blocks", make([]byte, 1024)},
		{"one zero block", make([]byte, 512)},
		{"the end of the file", nil},
		{"zeros up to a record of tar", make([]byte, 10240)},
		{"zeros that fill no block", make([]byte, 700)},
	} {
		t.Run(c.name, func(t *testing.T) {
			records, s, err := index(t, append(bytes.Clone(body), c.tail...))
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			require.Len(t, records, 2)
		})
	}
}

// A hole of zeros in a copy, or a second archive after the first: what follows is not lost
// silently, and what comes before is kept.
func TestBytesAfterEndAreDamage(t *testing.T) {
	body := new(archive).file("s1.a", "1").file("s2.a", "2").Bytes()
	for _, c := range []struct {
		name string
		tail []byte
		at   int64 // after the body
	}{
		{"a zero block and anything", append(make([]byte, 512), "anything at all"...), 512},
		{"a hole that is not as long as a block is", append(make([]byte, 700), 'x'), 700},
		{"a second archive", append(make([]byte, 1024), new(archive).file("s3.a", "3").end()...), 1024},
		{"a byte at the very end", append(make([]byte, 10239), 1), 10239},
	} {
		t.Run(c.name, func(t *testing.T) {
			records, s, err := index(t, append(bytes.Clone(body), c.tail...))
			require.NoError(t, err)
			require.Len(t, records, 2, "the last one too: the zero block shows its end")
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(len(body))+c.at, s.Damage.OffsetBytes)
			require.EqualValues(t, 2, s.Damage.Record)
			require.Contains(t, s.Damage.Reason, "tar -A")
		})
	}
}

func TestArchiveWithoutSamplesIsValid(t *testing.T) {
	for _, shard := range [][]byte{
		make([]byte, 1024),
		new(archive).ext('g', paxRecord("comment", "of an empty tree")).end(),
		new(archive).file("LICENSE", "free").end(),
	} {
		records, s, err := index(t, shard)
		require.NoError(t, err)
		require.Nil(t, s.Damage)
		require.Empty(t, records)
	}
}

func TestHugeSizesDoNotAllocate(t *testing.T) {
	for _, shard := range [][]byte{
		header('0', "a.b", 0, base256(1<<45)),
		header('x', "a.b", 0, base256(1<<45)),
		header('L', "a.b", 1<<30),
		new(archive).ext('x', paxRecord("size", "35184372088832")).file("a.b", "").Bytes(),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, s, err := index(t, shard)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.NotNil(t, s.Damage)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
	}
}

func TestMembersAllocateNothing(t *testing.T) {
	var few, many archive
	for i := range 3000 {
		a := &many
		if i < 10 {
			few.ext('x', paxRecord("mtime", "1.5")).file("a/s"+strings.Repeat("x", i%9)+".jpg", "data", prefix("p"))
		}
		a.ext('x', paxRecord("mtime", "1.5")).file("a/s"+strings.Repeat("x", i%9)+".jpg", "data", prefix("p"))
	}
	allocs := func(shard []byte) float64 {
		return testing.AllocsPerRun(3, func() {
			_, err := format.Scan(context.Background(), tar.Format{}, nil, bytes.NewReader(shard), int64(len(shard)), func(format.Extent) error { return nil }, nil)
			require.NoError(t, err)
		})
	}
	require.InDelta(t, allocs(few.end()), allocs(many.end()), 20)
}

func TestSniff(t *testing.T) {
	var f tar.Format
	require.True(t, f.Sniff(header('0', "a", 0)))
	require.True(t, f.Sniff(append(header('0', "a", 0, gnu), 1, 2, 3)))
	require.True(t, f.Sniff(signed(header('0', "\xff", 0))))
	require.False(t, f.Sniff(header('0', "a", 0, old)))
	require.False(t, f.Sniff(header('0', "a", 0)[:511]))
	damaged := header('0', "a", 0)
	damaged[1]++
	require.False(t, f.Sniff(damaged))
	require.False(t, f.Sniff(make([]byte, 512)))
}

func TestFraming(t *testing.T) {
	var f tar.Format
	require.Empty(t, f.Prologue(7))
	require.Equal(t, make([]byte, 1024), f.Epilogue(7))
	require.Equal(t, ".tar", f.StreamExtension("a/b.x"))
}

func TestKeys(t *testing.T) {
	for path, key := range map[string]string{
		"a/b.c/s1.seg.png": "a/b.c/s1",
		"22.05.png":        "22",
		"s1.":              "s1",
		"./s1.jpg":         "./s1",
		"/s1.jpg":          "/s1",
		"a/__s__.jpg":      "a/__s__",
		"___/s1.jpg":       "___/s1", // three characters
		"__x/s1.jpg":       "__x/s1",
		"":                 "",
		"LICENSE":          "",
		"a.b/LICENSE":      "",
		".hidden.jpg":      "",
		"a/.hidden":        "",
		"a.b/":             "",
		"____/s1.jpg":      "",
		"__meta__/s1.jpg":  "",
		"__s1.jpg__":       "",
	} {
		t.Run(path, func(t *testing.T) {
			records, s, err := index(t, new(archive).file(path, "data").end())
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			if key == "" {
				require.Empty(t, records)
				return
			}
			require.Len(t, records, 1)
			require.Equal(t, xxh3.HashString(key), records[0].KeyHash)
		})
	}
}

func TestRegularTypesAreEligible(t *testing.T) {
	for kind := range 256 {
		if k := byte(kind); k == 'x' || k == 'X' || k == 'g' || k == 'L' || k == 'K' || k == 'S' {
			continue
		}
		h := header(byte(kind), "s1.jpg", 600)
		var a archive
		if kind >= '1' && kind <= '6' {
			a.add(h, "") // no data, whatever the size is
		} else {
			a.add(h, string(make([]byte, 600)))
		}
		records, s, err := index(t, a.file("s2.jpg", "").end())
		require.NoError(t, err)
		require.Nil(t, s.Damage, "type %d", kind)
		want := 1
		if kind == '0' || kind == 0 || kind == '7' {
			want = 2
		}
		require.Len(t, records, want, "type %d", kind)
	}
}

// TestFilesSuite is in this package because it uses the naive parser of archives.
func TestFilesSuite(t *testing.T) {
	formattest.Suite{Format: tar.Files{}, Shards: filesShards(), Naive: naiveFiles, Draw: draw, EndsAnywhere: true}.Run(t)
}

// filesShards returns directories as storage presents them, and archives that are not directories.
func filesShards() []formattest.Shard {
	directory := func(contents ...string) []byte {
		var shard []byte
		for i := 0; i < len(contents); i += 2 {
			shard = tar.FileFraming{}.AppendHeader(shard, []byte(contents[i]), int64(len(contents[i+1])))
			shard = append(shard, contents[i+1]...)
			shard = append(shard, make([]byte, -len(contents[i+1])&511)...)
		}
		return shard
	}
	long := strings.Repeat("long/", 50)
	var links archive
	return append(shards(),
		formattest.Shard{Name: "files with one key and files without", Bytes: directory(
			"d/LICENSE", "free", "d/README", "", "d/a.cls", "1", "d/a.seg.png", "png", "d/b.", "", "d/b.jpg", strings.Repeat("2", 600))},
		formattest.Shard{Name: "long paths", Bytes: directory(long+"a.cls", "1", long+"a.jpg", "jpg", long+"b", "", long+"c", "")},
		formattest.Shard{Name: "names that tar passes over", Bytes: directory("__meta__/a.x", "", "__meta__/a.y", "1", "__meta__/b", "2")},
		formattest.Shard{Name: "links between files", Bytes: links.file("a.x", "1").add(header('2', "a.y", 0), "").file("a.z", "2").end()},
	)
}
