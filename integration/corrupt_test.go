package integration

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
)

// badInput is one damaged shard among intact ones.
type badInput struct {
	name          string
	format, codec string
	// spoil damages the shard before compression, pack after it. At the position at, one record
	// ends and record 5 begins.
	spoil func(b []byte, at int) []byte
	pack  func(packed []byte) []byte
	// record and the message's offset are in these closed intervals. Damage to a whole member has
	// no record.
	record [2]int
	offset func(at, size int) [2]int
}

// near returns where a message may report damage to the record at at: damage to its first header
// also removes the end of the record before it.
func near(at, size int) [2]int { return [2]int{at - 2000, min(size, at+2000)} }

// somewhere is for shards compressed as one member, and for damage further on.
func somewhere(_, size int) [2]int { return [2]int{0, size} }

var badInputs = []badInput{
	{name: "a tar truncated in a member", format: "tar", spoil: func(b []byte, at int) []byte { return b[:at+600] }, record: [2]int{5, 5}, offset: near},
	{name: "a tar truncated in a header", format: "tar", spoil: func(b []byte, at int) []byte { return b[:at+100] }, record: [2]int{4, 5}, offset: near},
	{name: "a tar header with a wrong checksum", format: "tar", spoil: flip(3), record: [2]int{4, 5}, offset: near},
	{name: "a tar member larger than anything", format: "tar", spoil: hugeMember, record: [2]int{4, 5}, offset: near},
	{name: "a tar.gz cut in the middle", format: "tar", codec: ".gz", pack: half, offset: somewhere},
	{name: "a tar.gz with a wrong checksum", format: "tar", codec: ".gz", pack: flipTail(6), offset: somewhere},
	{name: "a tar.zst cut in the middle", format: "tar", codec: ".zst", pack: half, offset: somewhere},
	{name: "a jsonl.gz cut in the middle", format: "jsonl", codec: ".gz", pack: half, offset: somewhere},
	{name: "a jsonl.gz with bytes after its end", format: "jsonl", codec: ".gz", pack: func(b []byte) []byte { return append(b, "garbage"...) }, offset: somewhere},
	{name: "a jsonl.zst with a damaged block", format: "jsonl", codec: ".zst", pack: flipTail(40), offset: somewhere},
	{name: "a tar.lz4 cut in the middle", format: "tar", codec: ".lz4", pack: half, offset: somewhere},
	{name: "a jsonl.lz4 with a damaged block", format: "jsonl", codec: ".lz4", pack: flipTail(40), offset: somewhere},
	{name: "a TFRecord whose length CRC is wrong", format: "tfrecord", spoil: flip(9), record: [2]int{5, 5}, offset: near},
	{name: "a TFRecord whose length is wrong", format: "tfrecord", spoil: flip(1), record: [2]int{5, 5}, offset: near},
	{name: "a TFRecord longer than anything", format: "tfrecord", spoil: hugeRecord, record: [2]int{5, 5}, offset: near},
	{name: "a TFRecord file cut in a record", format: "tfrecord", spoil: func(b []byte, at int) []byte { return b[:at+13] }, record: [2]int{5, 5}, offset: near},
	{name: "a fixed shard with a remainder", format: "fixed", spoil: func(b []byte, at int) []byte { return b[:at+7] }, record: [2]int{5, 5}, offset: near},
}

func flip(by int) func([]byte, int) []byte {
	return func(b []byte, at int) []byte { b[at+by] ^= 0x40; return b }
}

func flipTail(by int) func([]byte) []byte {
	return func(b []byte) []byte { b[len(b)-by] ^= 0x40; return b }
}

func half(b []byte) []byte { return b[:len(b)/2] }

// hugeMember inserts a header before the record at at that announces almost 8 EiB.
func hugeMember(b []byte, at int) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: "huge.bin", Typeflag: tar.TypeReg, Size: 1<<62 + 12345, Format: tar.FormatGNU})
	if err != nil {
		panic(err)
	}
	return append(b[:at:at], append(buf.Bytes(), b[at:]...)...)
}

// hugeRecord makes the length of the record at at huge, with a correct CRC.
func hugeRecord(b []byte, at int) []byte {
	binary.LittleEndian.PutUint64(b[at:], 1<<62)
	binary.LittleEndian.PutUint32(b[at+8:], maskedCRC(b[at:at+8]))
	return b
}

// dataset makes three shards. The middle one is bad.
func (c badInput) dataset(t *testing.T) (d dataset, at, size int) {
	t.Helper()
	d = makeDataset(t, formatNamed(c.format), codecs[0], 0, 1)
	r := rand.New(rand.NewPCG(1, 5))
	for i := range 3 {
		s := formatNamed(c.format).make(r, i*len(tarStyles)) // the simplest style of tar
		packed := s.bytes
		if i == 1 && c.spoil != nil {
			at = s.ends[4]
			packed = c.spoil(packed, at)
		}
		size = max(size, len(packed))
		switch c.codec {
		case ".gz":
			packed = gzipMember(packed)
		case ".zst":
			packed = zstdFrame(packed, false)
		case ".lz4":
			packed = lz4Frame(packed, lz4.Block64Kb, false)
		}
		if i == 1 && c.pack != nil {
			packed = c.pack(packed)
		}
		name := fmt.Sprintf("shard-%04d%s%s", i, formatNamed(c.format).ext, c.codec)
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), packed, 0o644))
	}
	return d, at, size
}

func TestBadInputIsRefusedByShardRecordAndOffset(t *testing.T) {
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			d, at, size := c.dataset(t)
			r := tool(t, append([]string{"index", d.dir}, d.flags...)...)
			require.Equal(t, exitDataset, r.code, r.stderr)
			require.Contains(t, r.stderr, "shard-0001"+formatNamed(c.format).ext+c.codec)
			require.Contains(t, r.stderr, "--on-corrupt skip", "the message ends with the next step")
			offset := numberAfter(t, r.stderr, `offset (\d+)`)
			bounds := c.offset(at, size)
			require.GreaterOrEqual(t, offset, bounds[0], r.stderr)
			require.LessOrEqual(t, offset, bounds[1], r.stderr)
			if c.record != [2]int{} {
				record := numberAfter(t, r.stderr, `record (\d+)`)
				require.GreaterOrEqual(t, record, c.record[0], r.stderr)
				require.LessOrEqual(t, record, c.record[1], r.stderr)
			}
			require.NotContains(t, r.stderr, "goroutine", "never a panic")
		})
	}
}

func numberAfter(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, "%q in %s", pattern, text)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func TestSkipLeavesOutWhatIsDamagedAndListsIt(t *testing.T) {
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			d, _, _ := c.dataset(t)
			d.flags = append(d.flags, "--on-corrupt", "skip")
			s := usual()
			ref := newReference(t, d)
			m := mountDataset(t, d, s)
			for w := range s.Workers {
				requireFile(t, ref.data(s, w), m.path("worker-%d%s", w, d.ext))
				require.Equal(t, ref.ids(s, w), splitIDs(m.read("worker-%d.ids", w)))
			}
			r := tool(t, append([]string{"index", d.dir}, d.flags...)...)
			require.Zero(t, r.code, r.stderr)
			require.Contains(t, string(r.stdout)+r.stderr, "shard-0001", "what was left out is listed")
		})
	}
}

func TestUnreadableDatasetsAreRefusedWithExplanation(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		flags []string
		path  string // appended to the dataset's path
		words []string
	}{
		{name: "an empty directory", words: []string{"no "}},
		{name: "nothing there", path: "/missing", words: []string{"missing"}},
		{name: "only unknown files", files: map[string]string{"a.xyz": "??", "b.png": "??"}, words: []string{".xyz", ".png", "--format"}},
		{name: "a file of 0 bytes", files: map[string]string{"a.jsonl": "{}\n", "b.jsonl.gz": ""}, words: []string{"b.jsonl.gz", "empty"}},
		{name: "shards without a record", files: map[string]string{"a.jsonl": "\n\n"}, words: []string{"record"}},
		{name: "two formats", files: map[string]string{"a.jsonl": "{}\n", "b.tfrecord": string(tfrecord(nil))}, words: []string{"jsonl", "tfrecord", "--format"}},
		{name: "a number of a pattern that is missing", files: map[string]string{"s-00.jsonl": "{}\n", "s-02.jsonl": "{}\n"}, path: "/s-{00..02}.jsonl", words: []string{"s-01.jsonl"}},
		{name: "a pattern that matches nothing", files: map[string]string{"a.jsonl": "{}\n"}, path: "/**/*.tar", words: []string{"*.tar"}},
		{name: "fixed without a size", files: map[string]string{"a.bin": "x"}, flags: []string{"--format", "fixed"}, words: []string{"--record-bytes"}},
		{name: "a format that does not exist", files: map[string]string{"a.bin": "x"}, flags: []string{"--format", "csvs"}, words: []string{"csvs", "tfrecord"}},
		{name: "a format that is not supported yet", files: map[string]string{"a.bin": "x"}, flags: []string{"--format", "arrow"}, words: []string{"Arrow is not supported yet", "Dataset.from_file"}},
		{name: "a sparse tar", files: map[string]string{"a.tar": sparseTar()}, flags: []string{"--on-corrupt", "skip"}, words: []string{"a.tar", "sparse"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range c.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
			}
			for _, verb := range []string{"index", "cat"} {
				r := tool(t, append([]string{verb, dir + c.path}, c.flags...)...)
				require.NotZero(t, r.code, verb)
				require.Empty(t, r.stdout, "data on stdout, everything else on stderr")
				for _, word := range c.words {
					require.Contains(t, r.stderr, word)
				}
				require.NotContains(t, r.stderr, "goroutine")
			}
			if _, err := os.Stat("/dev/fuse"); err == nil {
				_, err := tryMount(t, dataset{dir: dir + c.path, flags: c.flags}, t.TempDir())
				require.ErrorContains(t, err, c.words[0])
			}
		})
	}
}

// sparseTar returns an archive with a member of GNU's old sparse type.
func sparseTar() string {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "a.bin", Typeflag: tar.TypeReg, Format: tar.FormatGNU}); err != nil {
		panic(err)
	}
	w.Close()
	b := buf.Bytes()
	b[156] = 'S'
	b[153] += 'S' - '0' // the checksum's second-to-last digit: +0o43
	sum := 0
	copy(b[148:156], "        ")
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return buf.String()
}

func TestUnreadableShardIsNamed(t *testing.T) {
	lsiofs := openToOthers(t)
	d := plain(t, "jsonl", 2)
	cache := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Join(d.dir, "part-1/shard-0001.jsonl"), 0))
	if os.Getuid() == 0 {
		// Root can read everything, so run as another user, who may reach the files.
		letOthersThrough(t, d.dir, cache)
		require.NoError(t, os.Chmod(cache, 0o777))
		need(t, "setpriv")
	}
	for _, args := range [][]string{{"index"}, {"index", "--on-corrupt", "skip"}, {"verify"}} {
		args = append(args, d.dir)
		var r result
		if os.Getuid() == 0 {
			args = append([]string{"--reuid=65534", "--clear-groups", lsiofs}, args...)
			r = command(t, []string{"XDG_CACHE_HOME=" + cache, "HOME=" + cache}, nil, "setpriv", args...)
		} else {
			r = tool(t, args...)
		}
		require.Equal(t, 3, r.code, "%v", args)
		require.Contains(t, r.stderr, "shard-0001.jsonl")
		require.Contains(t, r.stderr, "permission denied")
		require.NotContains(t, r.stderr, "--on-corrupt", "what can't be read is not damaged")
	}
}

func TestTFRecordWithBadDataCRCIsEIOAndAffectsNoOtherRecord(t *testing.T) {
	c := badInput{format: "tfrecord", spoil: flip(12)}
	d, _, _ := c.dataset(t)
	// Record 5 must have data so that its CRC can be wrong.
	s := usual()
	s.Shuffle, s.Workers = "none", 1
	ref := newReference(t, d)
	want := ref.data(s, 0)
	offsets := splitOffsets(ref.ask(question{settings: s, Kind: "offsets"}))
	for _, policy := range []string{"fail", "skip"} {
		m := mountDataset(t, d, s, "--on-corrupt", policy)
		f, err := os.Open(m.path("worker-0.tfrecord"))
		require.NoError(t, err)
		defer f.Close()
		var bad []int
		for i := range len(offsets) - 1 {
			buf := make([]byte, offsets[i+1]-offsets[i])
			if _, err := f.ReadAt(buf, int64(offsets[i])); err != nil {
				require.ErrorIs(t, err, syscall.EIO)
				bad = append(bad, i)
				continue
			}
			requireSameBytes(t, want[offsets[i]:offsets[i+1]], buf, "record %d", i)
		}
		require.Len(t, bad, 1, "exactly one record can't be read")
		said := m.log.String() + string(m.read("status"))
		require.Contains(t, said, "shard-0001.tfrecord")
		require.Regexp(t, `record 5\b`, said)
	}
}
