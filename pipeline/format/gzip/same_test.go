package gzip_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"testing/iotest"

	kgzip "github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
)

// members is the common interface of a decoder of members and the reference.
type members interface {
	Next() (int64, error)
	Read(p []byte) (int, error)
}

// decoderReader hides all methods of a decoder except Read.
type decoderReader struct{ d members }

func (r decoderReader) Read(p []byte) (int, error) { return r.d.Read(p) }

// told is everything that a decoder returns for a file.
type told struct {
	starts  []int64
	members [][]byte // decoded; the last one may be damaged
	err     string   // "EOF" after the last member
	failure bool     // the error is a read error
}

// inDeflate is the position in the member's deflate data, in messages.
var inDeflate = regexp.MustCompile(`before offset \d+`)

var errStorage = errors.New("storage is away")

// tell reads all members in reads of size bytes.
func tell(t *testing.T, d members, size int) (s told) {
	t.Helper()
	p := make([]byte, size)
	fail := func(err error) told {
		s.err, s.failure = err.Error(), errors.Is(err, errStorage)
		_, again := d.Next()
		require.Equal(t, err, again, "errors are sticky")
		if err != io.EOF {
			n, again := d.Read(p)
			require.Zero(t, n)
			require.Equal(t, err, again, "errors are sticky")
		}
		return s
	}
	for {
		at, err := d.Next()
		s.starts = append(s.starts, at)
		if err != nil {
			return fail(err)
		}
		s.members = append(s.members, nil)
		decoded := &s.members[len(s.members)-1]
		for err == nil {
			var n int
			n, err = d.Read(p)
			require.True(t, n > 0 || err != nil, "a read of %d bytes gave nothing", size)
			*decoded = append(*decoded, p[:n]...)
		}
		if err != io.EOF {
			return fail(err)
		}
		n, err := d.Read(p)
		require.Zero(t, n)
		require.Equal(t, io.EOF, err, "a member's end stays its end")
	}
}

// requireSame compares the package's results for a file with those of the reference.
//
// The reference reads up to 25 bits before it decodes a symbol. So at the point where a member is
// truncated it may return some bytes less, and may report a later position. Package inflate is
// compared with another library, in this respect too.
func requireSame(t *testing.T, open func() io.Reader, size int, words string, args ...any) told {
	t.Helper()
	want := tell(t, newReference(open(), 1000), size)
	d, err := gzip.Codec{}.NewDecoder(open(), 1000)
	require.NoError(t, err)
	defer d.Close()
	got := tell(t, d, size)
	at := fmt.Sprintf(words, args...)
	require.Equal(t, inDeflate.ReplaceAllString(want.err, ""), inDeflate.ReplaceAllString(got.err, ""), at)
	require.Equal(t, want.failure, got.failure, at)
	require.Equal(t, want.starts, got.starts, at)
	require.Len(t, got.members, len(want.members), at)
	for i, w := range want.members {
		g := got.members[i]
		if i == len(want.members)-1 && want.err != io.EOF.Error() && len(g) > len(w) {
			g = g[:len(w)]
		}
		require.True(t, bytes.Equal(w, g), "%s: member %d: %d bytes, and not %d", at, i, len(g), len(w))
	}
	return got
}

// file makes a file of members of all kinds. With header, the first member's header has every
// optional field.
func file(t *testing.T, rest int, header bool) []byte {
	t.Helper()
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	text := []byte("a first line\n")
	for len(text) < rest {
		text = append(text, []string{"some ", "words ", "in ", "no order, ", "again\n", string(rune('a' + r.IntN(26)))}[r.IntN(6)]...)
	}
	random := make([]byte, rest/4)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for i, part := range [][]byte{text, nil, random, text[:rest/3], bytes.Repeat([]byte("ab"), rest/2), []byte("x")} {
		w, err := stdgzip.NewWriterLevel(&b, []int{6, 9, 1, stdgzip.HuffmanOnly, 6, 0}[i])
		require.NoError(t, err)
		if header && i == 0 {
			w.Extra, w.Name, w.Comment = []byte("RA\x03\x00abc"), "café.jsonl", "of a test"
		}
		_, err = w.Write(part)
		require.NoError(t, err)
		if i == 3 {
			require.NoError(t, w.Flush())
		}
		require.NoError(t, w.Close())
	}
	return b.Bytes()
}

func opener(p []byte) func() io.Reader { return func() io.Reader { return bytes.NewReader(p) } }

func TestWholeFilesMatchReferenceAtAnyReadSize(t *testing.T) {
	for _, rest := range []int{300, 200_000} {
		raw := file(t, rest, true)
		for _, size := range []int{1, 2, 3, 7, 100, 512, 4096, 32 << 10, 64 << 10, 65537, 1 << 20} {
			s := requireSame(t, opener(raw), size, "%d of bytes, reads of %d", rest, size)
			require.Equal(t, io.EOF.Error(), s.err)
			require.Len(t, s.members, 6)
		}
		for name, wrap := range map[string]func(io.Reader) io.Reader{"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "data with its error": iotest.DataErrReader} {
			s := requireSame(t, func() io.Reader { return wrap(bytes.NewReader(raw)) }, 1000, "%s", name)
			require.Equal(t, io.EOF.Error(), s.err)
		}
	}
}

// For a truncated file the error reports it, and where its member begins, wherever it was cut.
func TestTruncatedFilesMatchReference(t *testing.T) {
	raw := file(t, 300, true)
	for n := range raw {
		for _, size := range []int{1, 4096} {
			requireSame(t, opener(raw[:n]), size, "%d of %d bytes, reads of %d", n, len(raw), size)
		}
	}
	large := file(t, 200_000, false)
	for n := 0; n < len(large); n += 991 * formattest.Stride() {
		requireSame(t, opener(large[:n]), 5000, "%d of %d bytes", n, len(large))
	}
}

func TestFilesWithFlippedBitMatchReference(t *testing.T) {
	raw := file(t, 300, true)
	for i := range raw {
		for bit := range 8 {
			damaged := bytes.Clone(raw)
			damaged[i] ^= 1 << bit
			requireSame(t, opener(damaged), 1+i%700, "byte %d, bit %d", i, bit)
		}
	}
	large := file(t, 200_000, false)
	for i := 0; i < len(large); i += 997 * formattest.Stride() {
		damaged := bytes.Clone(large)
		damaged[i] ^= 1 << (i % 8)
		requireSame(t, opener(damaged), 5000, "byte %d", i)
	}
}

// Storage may fail after any byte. Members that end before it are complete.
func TestStorageFailuresMatchReference(t *testing.T) {
	raw := append(file(t, 300, true), make([]byte, 20)...)
	for n := range len(raw) + 1 {
		for _, size := range []int{1, 4096} {
			open := func() io.Reader { return io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(errStorage)) }
			s := requireSame(t, open, size, "after %d bytes", n)
			require.True(t, s.failure)
		}
	}
}

func TestHeadersMatchReference(t *testing.T) {
	deflated := []byte{0x03, 0x00, 0, 0, 0, 0, 0, 0, 0, 0} // an empty block, CRC and size
	crc := func(head []byte) []byte {
		return binary.LittleEndian.AppendUint16(head, uint16(crc32.ChecksumIEEE(head)))
	}
	head := func(flags byte, more ...byte) []byte {
		return append([]byte{0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 255}, more...)
	}
	long := bytes.Repeat([]byte("n"), 511)
	for _, c := range []struct {
		name string
		head []byte
		err  string
	}{
		{"nothing but the ten bytes", head(0), "EOF"},
		{"said to be text", head(1), "EOF"},
		{"a checksum", crc(head(2)), "EOF"},
		{"a wrong checksum", head(2, 1, 2), "header is invalid"},
		{"an extra field", head(4, 3, 0, 'a', 'b', 'c'), "EOF"},
		{"an empty extra field", head(4, 0, 0), "EOF"},
		{"the longest extra field", head(4, append([]byte{0xff, 0xff}, make([]byte, 65535)...)...), "EOF"},
		{"an extra field behind which nothing is", head(4, 0xff, 0xff), "ends inside"},
		{"a name", head(8, 'n', 0), "EOF"},
		{"a name of 511 bytes", head(8, append(long, 0)...), "EOF"},
		{"a comment", head(16, 'c', 0xe9, 0), "EOF"},
		{"all of them and a checksum", crc(head(31, 1, 0, 'x', 'n', 0, 'c', 0)), "EOF"},
		{"all of them and a wrong checksum", append(head(31, 1, 0, 'x', 'n', 0, 'c', 0), 1, 1), "header is invalid"},
		{"a flag that means nothing", head(32), "header is invalid"},
		{"all flags that mean nothing", head(0xe0), "header is invalid"},
		{"another method", []byte{0x1f, 0x8b, 7, 0, 0, 0, 0, 0, 0, 0}, "header is invalid"},
		{"another magic", []byte{0x1f, 0x8c, 8, 0, 0, 0, 0, 0, 0, 0}, "no gzip member begins here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := slices.Concat(c.head, deflated)
			require.Contains(t, requireSame(t, opener(raw), 10, "%s", c.name).err, c.err)
			for n := 0; n < len(raw); n += max(1, len(raw)/700) {
				requireSame(t, opener(raw[:n]), 10, "cut at %d", n)
				requireSame(t, func() io.Reader { return io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(errStorage)) }, 10, "failed at %d", n)
			}
			requireSame(t, opener(slices.Concat(deflatedMember, raw)), 10, "behind another member")
		})
	}
}

var deflatedMember = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0, 0x03, 0x00, 0, 0, 0, 0, 0, 0, 0, 0}

// Deflate data that no encoder writes.
func TestRefusedDeflateDataMatchesReference(t *testing.T) {
	head := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}
	for _, c := range []struct {
		name string
		data []byte
		err  string
	}{
		{"a block of the type that is none", []byte{0x07}, "corrupt"},
		{"a stored block whose sizes differ", []byte{0x01, 1, 0, 0, 0, 9, 9, 9}, "corrupt"},
		{"a stored block that is cut", []byte{0x01, 9, 0, 0xf6, 0xff, 'a'}, "ends inside"},
		{"a match before the first byte", []byte{0x03 | 0<<3, 0x02, 0, 0, 0, 0, 0}, ""},
		{"too many lengths", []byte{0x05 | 31<<3, 0, 0, 0, 0}, "corrupt"},
		{"too many distances", []byte{0x05, 31, 0, 0, 0, 0}, "corrupt"},
		{"codes of no code", append([]byte{0x05, 0, 0}, make([]byte, 50)...), "corrupt"},
		{"all ones", bytes.Repeat([]byte{0xff}, 50), "corrupt"},
		{"a wrong checksum", []byte{0x03, 0x00, 1, 0, 0, 0, 0, 0, 0, 0}, "checksum or size"},
		{"a wrong size", []byte{0x03, 0x00, 0, 0, 0, 0, 1, 0, 0, 0}, "checksum or size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := requireSame(t, opener(slices.Concat(head, c.data)), 10, "%s", c.name)
			require.Contains(t, s.err, c.err)
			require.NotEqual(t, "EOF", s.err)
			requireSame(t, opener(slices.Concat(head, c.data, make([]byte, 600))), 10, "%s, and more behind it", c.name)
		})
	}
}

func TestBytesAfterMembersMatchReference(t *testing.T) {
	member := formattest.Gzip([]byte("one\ntwo\n"))
	for _, zeros := range []int{0, 1, 2, 511, 512, 513, 300_000} {
		for _, tail := range [][]byte{nil, {'x'}, {0x1f}, {0x1f, 0x8b}, {0x1f, 'x'}, {0x8b, 0x1f}, member, member[:15]} {
			raw := slices.Concat(member, make([]byte, zeros), tail)
			requireSame(t, opener(raw), 4, "%d zeros, then %x", zeros, tail)
		}
	}
}

// dataWithFailure returns bytes together with a storage error.
type dataWithFailure struct{ p []byte }

func (r *dataWithFailure) Read(p []byte) (int, error) {
	n := copy(p, r.p)
	r.p = r.p[n:]
	if len(r.p) > 0 {
		return n, nil
	}
	return n, errStorage
}

func TestFailureAfterCompleteMemberIsNotBlamedOnMember(t *testing.T) {
	raw := slices.Concat(deflatedMember, formattest.Gzip([]byte("one\ntwo\n")))
	d, err := gzip.Codec{}.NewDecoder(&dataWithFailure{raw}, 0)
	require.NoError(t, err)
	defer d.Close()
	s := tell(t, d, 100)
	require.True(t, s.failure)
	require.Equal(t, [][]byte{nil, []byte("one\ntwo\n")}, s.members)
}

// reference decodes members with another gzip library. The package must give the same results for
// every file, intact or damaged.
type reference struct {
	raw      format.Raw
	gzip     kgzip.Reader
	member   int64
	inMember bool
	seen     bool
	err      error
}

func newReference(raw io.Reader, rawOffset int64) *reference {
	d := &reference{}
	d.raw.Reset(raw, rawOffset)
	return d
}

func (d *reference) Next() (int64, error) {
	if d.err == nil && d.inMember {
		if _, err := io.Copy(io.Discard, decoderReader{d}); err != nil {
			return 0, err
		}
	}
	if d.err == nil {
		d.err = d.begin()
	}
	return d.member, d.err
}

func (d *reference) begin() error {
	if d.seen {
		if err := d.passZeros(); err != nil {
			return err
		}
	}
	d.member = d.raw.OffsetBytes()
	magic := []byte{0x1f, 0x8b}
	head, err := d.raw.Buffer().Peek(len(magic))
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case len(head) == 0:
		return err
	case !bytes.HasPrefix(magic, head) && !bytes.HasPrefix(head, magic):
		if d.seen {
			return d.damage("the bytes after the last gzip member are neither a member nor zeros")
		}
		return d.damage("no gzip member begins here (1f 8b)")
	}
	if err := d.gzip.Reset(d.raw.Buffer()); err != nil {
		return d.explain(err)
	}
	d.gzip.Multistream(false)
	d.seen, d.inMember = true, true
	return nil
}

func (d *reference) passZeros() error {
	buffer := d.raw.Buffer()
	for zeros := 0; ; zeros++ {
		at := d.raw.OffsetBytes()
		b, err := buffer.ReadByte()
		switch {
		case d.raw.Failure() != nil:
			return d.raw.Failure()
		case err != nil:
			return err
		case b == 0:
			continue
		case zeros > 0:
			d.member = at
			return d.damage("there are bytes after the zeros that follow the last gzip member")
		}
		return buffer.UnreadByte()
	}
}

func (d *reference) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inMember {
		return 0, io.EOF
	}
	n, err := d.gzip.Read(p)
	if err == io.EOF {
		d.inMember = false
		return n, io.EOF
	}
	if err != nil {
		d.err = d.explain(err)
	}
	return n, d.err
}

func (d *reference) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return d.damage("the file ends inside a gzip member")
	case errors.Is(err, kgzip.ErrChecksum):
		return d.damage("the gzip member's checksum or size does not match its bytes")
	case errors.Is(err, kgzip.ErrHeader):
		return d.damage("the gzip member's header is invalid")
	}
	return d.damage(fmt.Sprintf("the gzip member can't be decoded: %v", err))
}

func (d *reference) damage(reason string) error {
	return &format.CorruptError{Record: -1, RawOffset: d.member, Reason: reason}
}
