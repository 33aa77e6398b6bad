package tar_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

func TestRenameGrowsAsPredicted(t *testing.T) {
	check := func(t require.TestingT, shard []byte, low uint64) {
		records, _, err := index(t, shard)
		if err != nil {
			return
		}
		for _, r := range records {
			record := shard[r.OffsetBytes:][:r.SizeBytes]
			for d := 1; d <= 20; d++ {
				p := uint64(math.Pow10(d-1)) + low%max(1, uint64(math.Pow10(min(d, 19)-1)))
				require.Len(t, strconv.FormatUint(p, 10), d)
				renamed, err := tar.Format{}.Rename([]byte("before"), record, p)
				require.NoError(t, err)
				grown := int64(0)
				if r.Growth != nil {
					grown = r.Growth[d-1]
				}
				require.Equal(t, "before", string(renamed[:6]))
				require.Equal(t, r.SizeBytes+grown, int64(len(renamed)-6))
				require.True(t, bytes.Equal(naiveRename(record, strconv.FormatUint(p, 10)), renamed[6:]))
			}
		}
	}
	for _, shard := range shards() {
		t.Run(shard.Name, func(t *testing.T) { check(t, shard.Bytes, 0) })
	}
	t.Run("random archives", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { check(t, draw(t), rapid.Uint64().Draw(t, "position")) })
	})
}

func TestGrowth(t *testing.T) {
	repeat := func(n int, low, high int64) []int64 {
		var g []int64
		for d := 1; d <= 20; d++ {
			v := low
			if d > n {
				v = high
			}
			g = append(g, v)
		}
		return g
	}
	p131, p150 := prefix(strings.Repeat("p", 131)), prefix(strings.Repeat("p", 150))
	for _, c := range []struct {
		name  string
		shard []byte
		want  []int64
	}{
		{"a plain header never grows", new(archive).file("a.b", "").end(), nil},
		{"a prefix of 130 bytes never grows", new(archive).file("a.b", "", prefix(strings.Repeat("p", 130))).end(), nil},
		{"a prefix of 131 bytes grows at 20 digits", new(archive).file("a.b", "", p131).end(), repeat(19, 0, 1024)},
		{"two of them grow twice", new(archive).file("a.b", "", p131).file("a.c", "", p131).end(), repeat(19, 0, 2048)},
		{"a prefix of 150 bytes always grows", new(archive).file("a.b", "", p150).end(), repeat(0, 0, 1024)},
		{"a prefix that is none of ustar's never grows", new(archive).file("a.b", "", gnu, p150).end(), nil},
		{"a PAX header with room never grows", new(archive).ext('x', paxRecord("mtime", "1")).file("a.b", "").end(), nil},
		// 490 and 22 bytes fill a block: "22 path=dup-1234/a.b\n" would be 21.
		{"a PAX header that fills its block grows", new(archive).ext('x', paxRecord("comment", strings.Repeat("c", 490-13))).file("a.b", "").end(), repeat(5, 0, 512)},
		{"a long name at the end of its block grows", new(archive).ext('L', strings.Repeat("x", 495)+".b\x00").file("a", "").end(), repeat(9, 0, 512)},
		{"a long name with data behind its NUL shrinks", new(archive).ext('L', "a.b\x00"+strings.Repeat("x", 600)).file("a", "").end(), repeat(0, 0, -512)},
	} {
		t.Run(c.name, func(t *testing.T) {
			records, _, err := index(t, c.shard)
			require.NoError(t, err)
			require.Equal(t, c.want, records[0].Growth)
		})
	}
}

func TestRenameCases(t *testing.T) {
	record := func(a *archive) []byte {
		records, _, err := index(t, a.Bytes())
		require.NoError(t, err)
		require.Len(t, records, 1)
		return a.Bytes()[records[0].OffsetBytes:][:records[0].SizeBytes]
	}
	for _, c := range []struct {
		name     string
		from, to *archive
	}{
		{"1: the path of a PAX header is replaced",
			new(archive).ext('x', paxRecord("path", "p.b")+paxRecord("mtime", "1")).file("a.b", "1"),
			new(archive).ext('x', paxRecord("path", "dup-12/p.b")+paxRecord("mtime", "1")).file("a.b", "1")},
		{"1: a path is appended to a PAX header",
			new(archive).ext('x', paxRecord("mtime", "1")).file("a.b", "1"),
			new(archive).ext('x', paxRecord("mtime", "1")+paxRecord("path", "dup-12/a.b")).file("a.b", "1")},
		{"1: the last PAX header is changed, of several",
			new(archive).ext('X', paxRecord("path", "p.b")).ext('x', paxRecord("mtime", "1")).file("a.b", "1"),
			new(archive).ext('X', paxRecord("path", "p.b")).ext('x', paxRecord("mtime", "1")+paxRecord("path", "dup-12/p.b")).file("a.b", "1")},
		{"1: a PAX header comes before a long name",
			new(archive).ext('L', "l.b\x00").ext('x', "").file("a.b", "1"),
			new(archive).ext('L', "l.b\x00").ext('x', paxRecord("path", "dup-12/l.b")).file("a.b", "1")},
		{"2: a long name is replaced, and junk behind it goes",
			new(archive).ext('L', "l.b\x00junk").file("a.b", "1", gnu),
			new(archive).ext('L', "dup-12/l.b\x00").file("a.b", "1", gnu)},
		{"3: a prefix is set",
			new(archive).file("a.b", "1"),
			new(archive).file("a.b", "1", prefix("dup-12"))},
		{"3: a prefix gets another in front",
			new(archive).file("a.b", "1", prefix("p")),
			new(archive).file("a.b", "1", prefix("dup-12/p"))},
		{"3: a GNU header becomes ustar, and its times go",
			new(archive).file("a.b", "1", gnu, field{345, strings.Repeat("1", 167)}),
			new(archive).file("a.b", "1", prefix("dup-12"))},
		{"3: an old header becomes ustar, with a checksum of unsigned bytes",
			new(archive).add(signed(header(0, "a.\xff", 1, old)), "1"),
			new(archive).add(header(0, "a.\xff", 1, prefix("dup-12")), "1")},
		{"3: a size in base 256 stays",
			new(archive).file("a.b", "1", base256(1)),
			new(archive).file("a.b", "1", base256(1), prefix("dup-12"))},
		{"4: a PAX header is put in front",
			new(archive).file("a.b", "1", prefix(strings.Repeat("p", 150))),
			new(archive).add(header('x', "././@PaxHeader", 171), paxRecord("path", "dup-12/"+strings.Repeat("p", 150)+"/a.b")).file("a.b", "1", prefix(strings.Repeat("p", 150)))},
		{"4: and that in front of a long link name too, with which the member begins",
			new(archive).ext('K', "l\x00").file("a.b", "1", prefix(strings.Repeat("p", 150))),
			new(archive).add(header('x', "././@PaxHeader", 171), paxRecord("path", "dup-12/"+strings.Repeat("p", 150)+"/a.b")).ext('K', "l\x00").file("a.b", "1", prefix(strings.Repeat("p", 150)))},
		{"what lies between members stays",
			new(archive).file("a.b", "1").file("LICENSE", "free").add(header('2', "a.lnk", 7), "").ext('g', paxRecord("comment", "c")).file("a.c", "2"),
			new(archive).file("a.b", "1", prefix("dup-12")).file("LICENSE", "free").add(header('2', "a.lnk", 7), "").ext('g', paxRecord("comment", "c")).file("a.c", "2", prefix("dup-12"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			renamed, err := tar.Format{}.Rename(nil, record(c.from), 12)
			require.NoError(t, err)
			require.True(t, bytes.Equal(c.to.Bytes(), renamed), "want %q\n got %q", trim(c.to.Bytes()), trim(renamed))
		})
	}
}

// trim makes an archive short enough to read.
func trim(p []byte) []byte { return bytes.ReplaceAll(p, make([]byte, 8), nil) }

func TestRenameOfDamagedMemberFails(t *testing.T) {
	_, err := tar.Format{}.Rename(nil, make([]byte, 100), 1)
	require.ErrorContains(t, err, "the record is not what was indexed")
}

// renamedStream returns all samples of a shard, each renamed, as in a stream.
func renamedStream(t *testing.T, shard []byte, position uint64) []byte {
	records, s, err := index(t, shard)
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	var stream []byte
	for _, r := range records {
		stream, err = tar.Format{}.Rename(stream, shard[r.OffsetBytes:][:r.SizeBytes], position)
		require.NoError(t, err)
	}
	return append(stream, tar.Format{}.Epilogue(0)...)
}

// makeTree creates files with paths of every relevant length.
func makeTree(t *testing.T) (dir string, paths []string) {
	dir = t.TempDir()
	for _, n := range []int{1, 60, 98, 100, 130, 155, 240, 490, 505, 512} {
		path := ""
		for len(path)+40 < n {
			path += strings.Repeat("d", 39) + "/"
		}
		path += strings.Repeat("k", max(1, n-len(path)-4)) + ".txt"
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), []byte(path), 0o644))
		paths = append(paths, path)
	}
	return dir, paths
}

const listWithPython = `
import sys, tarfile
for m in tarfile.open(fileobj=sys.stdin.buffer, mode="r|"):
    print(m.name)
`

const packWithPython = `
import sys, tarfile
t = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=int(sys.argv[1]))
for p in sys.argv[2:]: t.add(p)
t.close()
`

// TestOtherProgramsSeeRenamedPaths packs with other programs, renames, and lists the result with
// them.
func TestOtherProgramsSeeRenamedPaths(t *testing.T) {
	dir, paths := makeTree(t)
	var short []string // those that fit a ustar header
	for _, p := range paths {
		if len(p) <= 155 {
			short = append(short, p)
		}
	}
	for _, c := range []struct {
		name  string
		paths []string
		pack  func(t *testing.T, dir string, paths []string) []byte
	}{
		{"GNU tar, gnu", paths, gnuTar("gnu")},
		{"GNU tar, posix", paths, gnuTar("posix")},
		{"GNU tar, ustar", short, gnuTar("ustar")},
		{"GNU tar, v7", paths[:2], gnuTar("v7")},
		{"tarfile, ustar", short, pythonTar("0")},
		{"tarfile, gnu", paths, pythonTar("1")},
		{"tarfile, pax", paths, pythonTar("2")},
	} {
		t.Run(c.name, func(t *testing.T) {
			shard := c.pack(t, dir, c.paths)
			require.Equal(t, naive(shard).Records, first(index(t, shard)))
			for _, p := range []uint64{0, math.MaxUint64} {
				var want []string
				for _, path := range c.paths {
					want = append(want, "dup-"+strconv.FormatUint(p, 10)+"/"+path)
				}
				stream := renamedStream(t, shard, p)
				require.Equal(t, want, lines(formattest.Program(t, dir, stream, "tar", "tf", "-")))
				require.Equal(t, want, lines(formattest.Program(t, dir, stream, "python3", "-c", listWithPython)))
			}
		})
	}
}

func first(records []formattest.Record, _ any, _ error) []formattest.Record { return records }

func lines(out []byte) []string { return strings.Split(strings.TrimSpace(string(out)), "\n") }

func gnuTar(format string) func(*testing.T, string, []string) []byte {
	return func(t *testing.T, dir string, paths []string) []byte {
		return formattest.Program(t, dir, nil, "tar", append([]string{"-c", "-b1", "--format=" + format}, paths...)...)
	}
}

func pythonTar(format string) func(*testing.T, string, []string) []byte {
	return func(t *testing.T, dir string, paths []string) []byte {
		return formattest.Program(t, dir, nil, "python3", append([]string{"-c", packWithPython, format}, paths...)...)
	}
}
