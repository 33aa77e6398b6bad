package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// hostileMemory is --memory of the commands that read hostile shards.
const hostileMemory = 64 << 20

// bounded runs the program under test. The test fails if it takes longer than clientLimit, takes
// more memory than promised, or panics.
func bounded(t testing.TB, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(lsiofs, args...)
	cmd.Env = environment(filepath.Join(scratch, "tmp"))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(clientLimit, func() { cmd.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	most := 0
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-tick.C:
			if held, err := serve.MemoryOf(cmd.Process.Pid); err == nil {
				most = max(most, held)
			}
		}
	}
	require.True(t, watchdog.Stop(), "%s took longer than %v", cmd, clientLimit)
	require.NotContains(t, stderr.String(), "goroutine", "never a panic")
	if !raceBuilt { // the race detector takes memory of its own
		require.Less(t, most, hostileMemory+promisedSlack, "%s took %d MiB", cmd, most>>20)
	}
	return result{stdout.Bytes(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// hostile is a shard made to harm its readers.
type hostile struct {
	name, file string
	content    func() []byte
	words      string // in the refusal
	flags      []string
}

// zstdZeros returns a frame of blocks of 128 KiB of one byte, 4 bytes each.
func zstdZeros(blocks int, b byte) []byte {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3} // window of 128 KiB
	for i := range blocks {
		head := uint32(128<<10)<<3 | 1<<1 // of a run
		if i == blocks-1 {
			head |= 1
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), b)
	}
	return frame
}

func gzipOf(part []byte, times int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range times {
		w.Write(part)
	}
	w.Close()
	return b.Bytes()
}

func lz4Of(part []byte, times int, options ...lz4.Option) []byte {
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	if err := w.Apply(options...); err != nil {
		panic(err)
	}
	for range times {
		w.Write(part)
	}
	w.Close()
	return b.Bytes()
}

// tarHeader returns a header with a correct checksum. size fills the 12 bytes of the field.
func tarHeader(kind byte, size string) []byte {
	h := make([]byte, 512)
	copy(h, "b.txt")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:136], size)
	copy(h[136:], "00000000000\x00        ")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// base256 returns a number of 11 bytes as a size field.
func base256(high uint32, low uint64) string {
	b := binary.BigEndian.AppendUint32(nil, 1<<31|high)
	return string(binary.BigEndian.AppendUint64(b, low))
}

// tarOf returns an archive of these pieces, each padded to whole blocks, after an intact member.
func tarOf(pieces ...[]byte) func() []byte {
	return func() []byte {
		b := append(tarHeader('0', "00000000003\x00"), "one"...)
		b = append(b, make([]byte, 509)...)
		for _, p := range pieces {
			b = append(append(b, p...), make([]byte, -len(p)&511)...)
		}
		return append(b, make([]byte, 1024)...)
	}
}

func octal(n int) string { return fmt.Sprintf("%011o\x00", n) }

// paxOf returns a PAX header followed by a member.
func paxOf(records string) func() []byte {
	return tarOf(tarHeader('x', octal(len(records))), []byte(records), tarHeader('0', octal(3)), []byte("two"))
}

// npyOf returns an array with that header and some bytes.
func npyOf(dictionary string) func() []byte {
	return func() []byte {
		b := append([]byte("\x93NUMPY\x02\x00"), binary.LittleEndian.AppendUint32(nil, uint32(len(dictionary)))...)
		return append(append(b, dictionary...), make([]byte, 4096)...)
	}
}

func frameOfLength(n uint64) func() []byte {
	return func() []byte {
		b := tfrecord([]byte("a sound one"))
		b = binary.LittleEndian.AppendUint64(b, n)
		return append(binary.LittleEndian.AppendUint32(b, maskedCRC(b[len(b)-8:])), make([]byte, 100)...)
	}
}

func seekableZstd(table []byte) func() []byte {
	return func() []byte {
		b := binary.LittleEndian.AppendUint32(zstdFrame([]byte("one\ntwo\n"), true), 0x184d2a5e)
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(table))), table...)
	}
}

var (
	linesFlags = []string{"--format", "lines"}
	// hugeSizes are huge sizes, each as a tar's size field.
	hugeSizes = map[string]string{
		"2^33": base256(0, 1<<33), "2^62": base256(0, 1<<62), "2^63-1": base256(0, math.MaxInt64),
		"2^63": base256(0, 1<<63), "2^64-1": base256(0, math.MaxUint64), "2^94": base256(1<<30-1, math.MaxUint64),
		"12 octal digits": "777777777777",
	}
)

func hostiles() []hostile {
	list := []hostile{
		{"a line of 1 GiB in 32 KB of zstd", "b.txt.zst", func() []byte { return zstdZeros(8192, 'x') }, "--max-record", linesFlags},
		{"a line of 256 MiB in 256 KB of gzip", "b.txt.gz", func() []byte { return gzipOf(bytes.Repeat([]byte("x"), 1<<20), 256) }, "--max-record", linesFlags},
		{"a line of 256 MiB in 1 MB of lz4", "b.txt.lz4", func() []byte { return lz4Of(bytes.Repeat([]byte("x"), 1<<20), 256) }, "--max-record", linesFlags},
		{"a tar member of 1 GiB in 32 KB of zstd", "b.tar.zst", func() []byte {
			return append(zstdFrame(tarHeader('0', octal(1<<30)), true), zstdZeros(8193, 0)...)
		}, "--max-record", nil},

		{"a zstd window of 2^41", "b.txt.zst", func() []byte { return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 3, 0, 0, 'x'} }, "needs a window of", linesFlags},
		{"a zstd frame in one segment of 2^64-1", "b.txt.zst", func() []byte {
			return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 255, 255, 255, 255, 255, 255, 255, 255}, 3, 0, 0, 'x')
		}, "needs a window of", linesFlags},
		{"a zstd frame that tells 2^62 bytes", "b.txt.zst", func() []byte {
			return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 7 << 3, 0, 0, 0, 0, 0, 0, 0, 64}, 9, 0, 0, 'x')
		}, "zstd", linesFlags},
		{"a zstd block of 2 MiB", "b.txt.zst", func() []byte {
			return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x78}, 3, 0, 255, 'x')
		}, "zstd", linesFlags},
		{"a skippable zstd frame of 4 GiB", "b.txt.zst", func() []byte { return []byte{0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255, 1} }, "skippable", linesFlags},
		{"an lz4 frame that tells 2^62 bytes", "b.txt.lz4", func() []byte { return lz4Of([]byte("one\n"), 1, lz4.SizeOption(1<<62)) }, "lz4 frame", linesFlags},
		{"an lz4 block of 2 GiB", "b.txt.lz4", func() []byte {
			b := lz4Of([]byte("one\n"), 1)
			binary.LittleEndian.PutUint32(b[7:], math.MaxInt32)
			return b
		}, "lz4", linesFlags},
		{"a skippable lz4 frame of 4 GiB", "b.txt.lz4", func() []byte { return []byte{0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255, 1} }, "skippable", linesFlags},
		{"a gzip header that never ends", "b.txt.gz", func() []byte {
			return append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255}, bytes.Repeat([]byte("n"), 1<<20)...)
		}, "gzip", linesFlags},

		{"a size of a tar that is negative", "b.tar", tarOf(tarHeader('0', strings.Repeat("\xff", 12))), "size field", nil},
		{"a PAX size that is negative", "b.tar", paxOf(paxRecord("size", "-1")), "PAX header's size", nil},
		{"a PAX record longer than its header", "b.tar", paxOf("9223372036854775807 path=x\n"), "PAX record", nil},
		{"a PAX record of no length", "b.tar", paxOf("0 path=x\n"), "PAX record", nil},
		{"a PAX header of more than 1 MiB", "b.tar", paxOf(paxRecord("comment", strings.Repeat("x", 1<<20))), "more than 1 MiB", nil},
		{"a GNU long name of more than 1 MiB", "b.tar", tarOf(tarHeader('L', octal(1<<20+1)), make([]byte, 1<<20+1)), "more than 1 MiB", nil},
		{"a sparse member", "b.tar", tarOf(tarHeader('S', octal(3)), []byte("two")), "sparse", nil},
		{"a sparse member by PAX", "b.tar", paxOf(paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.realsize", "9223372036854775807")), "sparse", nil},
		{"a global PAX path", "b.tar", tarOf(tarHeader('g', octal(len(paxRecord("path", "x")))), []byte(paxRecord("path", "x"))), "global", nil},

		{"an npy header of 4 GiB", "b.npy", func() []byte { return []byte("\x93NUMPY\x03\x00\xff\xff\xff\xff{") }, "header has 4294967295 bytes", nil},
		{"an npy header of tuples 10^5 deep", "b.npy", npyOf(strings.Repeat("(", 100_000)), "dictionary", nil},
		{"a shape of tuples 10^5 deep", "b.npy", npyOf("{'descr': '<f4', 'fortran_order': False, 'shape': " + strings.Repeat("(", 100_000)), "deep", nil},
		{"2^63-1 rows", "b.npy", npyOf("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }"), "the file ends in row", nil},
		{"rows of 2^126 bytes", "b.npy", npyOf("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 9223372036854775807, 9223372036854775807), }"), "b.npy", nil},
		{"a number beyond 64 bits", "b.npy", npyOf("{'descr': '<f8', 'fortran_order': False, 'shape': (" + strings.Repeat("9", 1000) + ",), }"), "not a number", nil},
		{"a dtype of 2^63-1 bytes", "b.npy", npyOf("{'descr': '|S9223372036854775807', 'fortran_order': False, 'shape': (1,), }"), "b.npy", nil},

		{"a frame of 2^62 bytes", "b.tfrecord", frameOfLength(1 << 62), "the file ends inside the record", nil},
		{"a frame of 2^63-1 bytes", "b.tfrecord", frameOfLength(math.MaxInt64), "record 1", nil},
		{"a frame of 2^64-1 bytes", "b.tfrecord", frameOfLength(math.MaxUint64), "record 1", nil},
	}
	for name, size := range hugeSizes {
		list = append(list,
			hostile{"a tar member of " + name, "b.tar", tarOf(tarHeader('0', size), []byte("two")), "the file ends inside a member", nil},
			hostile{"a PAX header of " + name, "b.tar", tarOf(tarHeader('x', size), []byte("two")), "ends inside an extension header", nil},
			hostile{"a GNU long name of " + name, "b.tar", tarOf(tarHeader('L', size), []byte("two")), "ends inside an extension header", nil},
			hostile{"a GNU long link of " + name, "b.tar", tarOf(tarHeader('K', size), []byte("two")), "ends inside an extension header", nil})
	}
	for _, size := range []string{"9223372036854775807", "9223372036854775808", strings.Repeat("9", 10_000)} {
		list = append(list, hostile{fmt.Sprintf("a PAX size of %d digits ending in %s", len(size), size[len(size)-3:]), "b.tar",
			paxOf(paxRecord("size", size)), "the file ends inside a member", nil})
	}
	return list
}

// Each hostile shard is next to an intact one.
func TestHostileShardsAreRefusedInBoundedMemoryAndTime(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range hostiles() {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			content := c.content()
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), content, 0o600))
			flags := append([]string{dir, "--memory", fmt.Sprint(hostileMemory), "--max-record", "64MiB"}, c.flags...)
			r := bounded(t, append([]string{"index"}, flags...)...)
			require.Equal(t, exitDataset, r.code, r.stderr)
			require.Contains(t, r.stderr, c.file)
			require.Contains(t, r.stderr, c.words)

			// If it may leave out damage, it delivers what is intact or refuses.
			r = bounded(t, append([]string{"cat", "--on-corrupt", "skip"}, flags...)...)
			require.Contains(t, []int{0, exitDataset}, r.code, r.stderr)
			require.Less(t, len(r.stdout), len(content)+8192)
		})
	}
}

// Frames are found by decoding, so wrong seek tables have no effect.
func TestSeekTablesThatLieChangeNothing(t *testing.T) {
	for name, table := range map[string][]byte{
		"2^32-1 frames":   append(make([]byte, 8), 255, 255, 255, 255, 0, 0xb1, 0xea, 0x92, 0x8f),
		"frames of 4 GiB": append(bytes.Repeat([]byte{255}, 8), 1, 0, 0, 0, 0, 0xb1, 0xea, 0x92, 0x8f),
		"no table":        {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b.txt.zst"), seekableZstd(table)(), 0o600))
			r := bounded(t, "cat", dir, "--shuffle", "none", "--format", "lines")
			require.Zero(t, r.code, r.stderr)
			require.Equal(t, "one\ntwo\n", string(r.stdout))
		})
	}
}

// tmpfs supports such files.
func TestSparseFilesOfNearly2To63BytesAreRefused(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "lsiofs-integration-")
	if err != nil {
		missing(t, "no tmpfs: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, c := range []struct {
		name, file string
		size       int64
		head       []byte
		flags      []string
		words      string
	}{
		{"a line", "b.jsonl", math.MaxInt64, []byte("{}\n"), nil, "9223372036854775807 bytes"},
		{"a tar member", "b.tar", math.MaxInt64, tarHeader('0', base256(0, math.MaxInt64-4096)), nil, "9223372036854775807 bytes"},
		{"a fixed record", "b.bin", math.MaxInt64, nil, []string{"--format", "fixed", "--record-bytes", "4611686018427387904"}, "bytes"},
		{"a tar member of 1 PiB", "b.tar", 1<<50 + 4096, tarHeader('0', base256(0, 1<<50)), nil, "--max-record"},
		{"a frame of 1 PiB", "b.tfrecord", 1<<50 + 16, func() []byte {
			b := binary.LittleEndian.AppendUint64(nil, 1<<50)
			return binary.LittleEndian.AppendUint32(b, maskedCRC(b))
		}(), nil, "--max-record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.file)
			require.NoError(t, os.WriteFile(path, c.head, 0o600))
			defer os.Remove(path)
			if err := os.Truncate(path, c.size); err != nil {
				missing(t, "/dev/shm has no sparse files of %d bytes: %v", c.size, err)
			}
			r := bounded(t, append([]string{"cat", dir, "--memory", fmt.Sprint(hostileMemory)}, c.flags...)...)
			require.Equal(t, exitDataset, r.code, r.stderr)
			require.Contains(t, r.stderr, c.file)
			require.Contains(t, r.stderr, c.words)
		})
	}
}

// Such shards are not damaged.
func TestMillionsOfTinyThingsAreIndexedInBoundedMemory(t *testing.T) {
	serve.Tier(t, serve.CI)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	defer encoder.Close()
	for _, c := range []struct {
		name, file string
		content    func() []byte
		records    string
		flags      []string
	}{
		{"lines of a byte", "b.txt.zst", func() []byte { return encoder.EncodeAll(bytes.Repeat([]byte("a\n"), 20_000_000), nil) }, "20,000,000", linesFlags},
		{"frames without a byte", "b.txt.zst", func() []byte {
			empty := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38, 1, 0, 0}
			return append(bytes.Repeat(empty, 1_000_000), zstdFrame([]byte("one\n"), true)...)
		}, "1", linesFlags},
		{"members without a byte, of one sample each", "b.tar.zst", func() []byte {
			var b []byte
			member := tarHeader('0', octal(0))
			for i := range 400_000 {
				copy(member, fmt.Sprintf("%06d.x", i))
				copy(member[148:], "        ")
				sum := 0
				for _, c := range member {
					sum += int(c)
				}
				copy(member[148:], fmt.Sprintf("%06o\x00 ", sum))
				b = append(b, member...)
			}
			return encoder.EncodeAll(b, nil)
		}, "400,000", nil},
		{"extension headers of one member", "b.tar.zst", func() []byte {
			record := paxRecord("comment", "x")
			one := append(append(tarHeader('x', octal(len(record))), record...), make([]byte, 512-len(record))...)
			return encoder.EncodeAll(append(bytes.Repeat(one, 30_000), tarHeader('0', octal(0))...), nil)
		}, "1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), c.content(), 0o600))
			r := bounded(t, append([]string{"index", dir, "--memory", fmt.Sprint(hostileMemory)}, c.flags...)...)
			require.Zero(t, r.code, r.stderr)
			require.Regexp(t, `(?m)^records +`+c.records+`$`, string(r.stdout))
		})
	}
}

// lsiofs unpacks nothing and opens no member's path, so any name is accepted. Programs that unpack
// a stream have to check names themselves.
func TestNamesInArchivesArePresentedAsTheyAre(t *testing.T) {
	d := dataset{dir: t.TempDir(), ext: ".tar"}
	long := strings.Repeat("n", 1<<20-100)
	for i := range 3 {
		var b []byte
		for _, name := range []string{
			"../../../../etc/passwd.txt", "/etc/passwd.txt", "a/../b.txt", "..", "../.txt", "a\nb.txt", "\x1b]0;title\a.txt",
			"\xff\xfe.txt", "\u202etxt.exe", "sym\\link.txt", "-rf.txt", long + ".txt",
		} {
			record := paxRecord("path", name)
			for _, p := range [][]byte{tarHeader('x', octal(len(record))), []byte(record), tarHeader('0', octal(3)), []byte("two")} {
				b = append(append(b, p...), make([]byte, -len(p)&511)...)
			}
			for _, p := range [][]byte{tarHeader('L', octal(len(name)+1)), []byte(name + "\x00"), tarHeader('0', octal(3)), []byte("two")} {
				b = append(append(b, p...), make([]byte, -len(p)&511)...)
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.tar", i)), append(b, make([]byte, 1024)...), 0o600))
	}
	requireSameOutcome(t, d)
}
