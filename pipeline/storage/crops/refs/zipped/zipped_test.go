package zipped

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
)

// written returns a zip file of uncompressed members, written by archive/zip.
func written(t testing.TB, members ...string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, name := range members {
		m, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Extra: extras[i%len(extras)]})
		require.NoError(t, err)
		if strings.HasSuffix(name, "/") {
			continue
		}
		_, err = fmt.Fprintf(m, "content %d", i)
		require.NoError(t, err)
	}
	require.NoError(t, w.SetComment("PK\x05\x06 is no end"))
	require.NoError(t, w.Close())
	return b.Bytes()
}

// extras are extra fields for other programs.
var extras = [][]byte{nil, {0xfe, 0xca, 2, 0, 1, 2}}

// content returns the content of a member, read as a storage reads it.
func content(b []byte, t *table.Table, i int) (string, error) {
	p := t.Place(i)
	n, err := Header(b[p.Offset:min(int64(len(b)), p.Offset+int64(HeaderBytes(t.Key(i))))], t.Key(i))
	if err != nil {
		return "", err
	}
	begin := p.Offset + n
	if p.Size > int64(len(b))-begin {
		return "", io.ErrUnexpectedEOF
	}
	return string(b[begin : begin+p.Size]), nil
}

func parse(b []byte) (*table.Table, error) { return Parse(bytes.NewReader(b), int64(len(b)), 1<<30) }

func TestMembersAreFoundAtTheirOffsets(t *testing.T) {
	b := written(t, "a/.zarray", "a/0.0", "a/0.1", "a/")
	got, err := parse(b)
	require.NoError(t, err)
	require.Equal(t, 3, got.Len(), "and a directory is none")
	for i, want := range []string{"content 0", "content 1", "content 2"} {
		text, err := content(b, got, i)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	got, err = parse(written(t))
	require.NoError(t, err)
	require.Zero(t, got.Len())
}

func TestLastMemberWithDuplicateNameWins(t *testing.T) {
	b := written(t, ".zattrs", "0", ".zattrs")
	got, err := parse(b)
	require.NoError(t, err)
	text, err := content(b, got, 0)
	require.NoError(t, err)
	require.Equal(t, "content 2", text)
}

// 70 000 members need zip64.
func TestZIP64ArchiveOfManyMembersIsRead(t *testing.T) {
	names := make([]string, 70_000)
	for i := range names {
		names[i] = fmt.Sprintf("a/%d", i)
	}
	b := written(t, names...)
	got, err := parse(b)
	require.NoError(t, err)
	require.Equal(t, len(names), got.Len())
	for i := 0; i < len(names); i += 9973 {
		at, found := got.Find(names[i])
		require.True(t, found)
		text, err := content(b, got, at)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("content %d", i), text)
	}
}

// sparse is a large archive: a long member of zeros between head and tail.
type sparse struct {
	head, tail []byte
	size       int64
}

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := off + int64(i)
		switch from := s.size - int64(len(s.tail)); {
		case at >= s.size:
			return i, io.EOF
		case at >= from:
			p[i] = s.tail[at-from]
		case at < int64(len(s.head)):
			p[i] = s.head[at]
		default:
			p[i] = 0
		}
	}
	return len(p), nil
}

// Sizes and offsets above 4 GiB are in zip64 fields.
func TestMembersBeyondFourGigabytesAreRead(t *testing.T) {
	const large = 5 << 30
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	_, err := w.CreateRaw(&zip.FileHeader{Name: "large", Method: zip.Store, CompressedSize64: large, UncompressedSize64: large})
	require.NoError(t, err)
	require.NoError(t, w.Flush())
	head := bytes.Clone(b.Bytes())
	n := len(head)
	// The directory of an archive whose second member follows the first.
	entry := func(name string, size, offset uint64) []byte {
		e := make([]byte, entryBytes, 200)
		copy(e, "PK\x01\x02")
		for _, at := range []int{20, 24, 42} {
			binary.LittleEndian.PutUint32(e[at:], none32)
		}
		binary.LittleEndian.PutUint16(e[28:], uint16(len(name)))
		binary.LittleEndian.PutUint16(e[30:], 4+5+4+24)
		e = append(append(e, name...), 0xfe, 0xca, 5, 0, 1, 2, 3, 4, 5, 1, 0, 24, 0)
		for _, x := range []uint64{size, size, offset} {
			e = binary.LittleEndian.AppendUint64(e, x)
		}
		return e
	}
	dir := append(entry("large", large, 0), entry("second", 9, large+uint64(n))...)
	second := append(append([]byte("PK\x03\x04"), make([]byte, 26)...), "secondcontent 1"...)
	binary.LittleEndian.PutUint16(second[26:], 6)
	offset := uint64(n) + large + uint64(len(second))
	end := append([]byte("PK\x06\x06"), make([]byte, 52)...)
	binary.LittleEndian.PutUint64(end[4:], 44)
	for at, x := range map[int]uint64{24: 2, 32: 2, 40: uint64(len(dir)), 48: offset} {
		binary.LittleEndian.PutUint64(end[at:], x)
	}
	locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
	binary.LittleEndian.PutUint64(locator[8:], offset+uint64(len(dir)))
	binary.LittleEndian.PutUint32(locator[16:], 1)
	last := append([]byte("PK\x05\x06\x00\x00\x00\x00"), bytes.Repeat([]byte{0xff}, 12)...)
	last = append(last, 0, 0)
	tail := bytes.Join([][]byte{second, dir, end, locator, last}, nil)
	s := sparse{head, tail, int64(n) + large + int64(len(tail))}
	got, err := Parse(s, s.size, 1<<30)
	require.NoError(t, err)
	require.Equal(t, 2, got.Len())
	require.EqualValues(t, large, got.Place(0).Size)
	require.EqualValues(t, large+n, got.Place(1).Offset)

	binary.LittleEndian.PutUint64(tail[len(second)+entryBytes+5+13:], 1<<63-1) // the first one's size
	_, err = Parse(s, s.size, 1<<30)
	require.ErrorContains(t, err, `member "large": `)
}

func TestADamagedZipFileIsRefused(t *testing.T) {
	good := written(t, "a/0", "a/1")
	at := bytes.Index(good, []byte("PK\x01\x02"))
	end := bytes.LastIndex(good, []byte("PK\x05\x06\x00"))
	for name, damage := range map[string]struct {
		do   func(b []byte) []byte
		want string
	}{
		"cut":             {func(b []byte) []byte { return b[:len(b)-1] }, "no directory at its end"},
		"something first": {func(b []byte) []byte { return append([]byte("#!"), b...) }, "bytes were put before it"},
		"empty":           {func(b []byte) []byte { return nil }, "not a zip file"},
		"no entry":        {func(b []byte) []byte { b[at] = 0; return b }, "other bytes where a member has to be"},
		"more members":    {func(b []byte) []byte { b[end+10]++; b[end+8]++; return b }, "has no room for 3 members"},
		"fewer members":   {func(b []byte) []byte { b[end+10]--; b[end+8]--; return b }, "more members than its end counts"},
		"several disks":   {func(b []byte) []byte { b[end+4]++; return b }, "several parts"},
		"encrypted":       {func(b []byte) []byte { b[at+8] |= 1; return b }, "encrypted"},
		"other sizes":     {func(b []byte) []byte { b[at+24]++; return b }, "it is damaged"},
		"offset":          {func(b []byte) []byte { b[at+45] = 0x40; return b }, "more than come before the directory"},
		"zip64 missing":   {func(b []byte) []byte { copy(b[at+20:], "\xff\xff\xff\xff"); return b }, "zip64 numbers are missing"},
		"evil name":       {func(b []byte) []byte { copy(b[at+46:], "../"); return b }, "is not a path"},
		"long name":       {func(b []byte) []byte { b[at+29] = 0xff; return b }, "ends in the middle"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(damage.do(bytes.Clone(good)))
			require.ErrorContains(t, err, damage.want)
		})
	}
	for i, want := range map[int]string{0: "not where the directory has it", 8: "compressed", 26: "another name", 30: "another name"} {
		b := bytes.Clone(good)
		b[i]++
		got, err := parse(b)
		require.NoError(t, err)
		_, err = content(b, got, 0)
		require.ErrorContains(t, err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(written(f, "a/.zarray", "a/0.0"))
	f.Add(written(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parse(b)
		if err != nil {
			return
		}
		for i := range got.Len() {
			p := got.Place(i)
			if p.Kind == table.Compressed {
				continue
			}
			if p.Offset < 0 || p.Size < 0 || p.Offset+p.Size > int64(len(b)) {
				t.Fatalf("member %q lies at %v of %d bytes", got.Key(i), p, len(b))
			}
			_, _ = content(b, got, i)
		}
	})
}
