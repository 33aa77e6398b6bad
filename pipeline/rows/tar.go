package rows

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// Tar presents a row as a WebDataset sample, which has these members:
//
//	KEY.json       a JSON object of the columns that were not named; left out if all were
//	KEY.SUFFIX     for each binary value in these columns, outside of maps: its bytes. KEY.json has
//	               the suffix in its place
//	KEY.NAME       for each column that was named: its bytes, or its text, or JSON
//
// Null values have no members. A sample that would have none has a KEY.json of "{}".
type Tar struct {
	key            []byte // with '/', without the ordinal
	unnamed, named []node
	unnamedAt      []int
	namedAt        []int
	maxBytes       int64

	// Scratch: the text of a sample that is only measured, the path of a member, the writer.
	scratch, path []byte
	writer        writer
}

var _ Presenter = (*Tar)(nil)

// NewTar returns a presenter of the samples of one shard, of at most maxBytes each; 0 means no
// limit. path is the shard's, without the extension of a codec. It returns a *RefusedError if two
// members of a sample could have names that are equal but for case.
func NewTar(columns []Column, path string, maxBytes int64) (*Tar, error) {
	p := &Tar{key: keyOf(path), maxBytes: maxBytes}
	for i, c := range columns {
		if !c.Named {
			p.unnamed = append(p.unnamed, newNode(c.Type, c.Name, len(p.unnamed) == 0))
			p.unnamedAt = append(p.unnamedAt, i)
			continue
		}
		if strings.ContainsFunc(c.Name, func(r rune) bool { return r < ' ' || r == '/' || r == 0x7f }) {
			return nil, refused("", "--columns: the name %q can't be that of a member of a sample: use one without slashes and control characters", c.Name)
		}
		p.named = append(p.named, newNode(c.Type, c.Name, i == 0))
		p.namedAt = append(p.namedAt, i)
	}
	return p, clash(p.unnamed, p.named)
}

// keyOf returns the key of a shard's samples up to their ordinals: the path without its extension,
// with '_' for the other dots of its last component, and '/'.
func keyOf(path string) []byte {
	base := strings.LastIndexByte(path, '/') + 1
	if dot := strings.LastIndexByte(path[base:], '.'); dot >= 0 {
		path = path[:base+dot]
	}
	return append([]byte(path[:base]), strings.ReplaceAll(path[base:], ".", "_")+"/"...)
}

// Extension implements Presenter.
func (p *Tar) Extension() string { return ".tar" }

// Append implements Presenter.
func (p *Tar) Append(dst []byte, b *Batch, r int, ordinal int64) ([]byte, error) {
	s := sample{Tar: p, dst: dst, write: true}
	if err := s.row(b, r, ordinal); err != nil {
		return dst, err
	}
	return s.dst, nil
}

// Size implements Presenter.
func (p *Tar) Size(b *Batch, r int, ordinal int64) (int64, error) {
	s := sample{Tar: p, dst: p.scratch[:0]}
	err := s.row(b, r, ordinal)
	p.scratch = s.dst[:0]
	if err != nil {
		return 0, err
	}
	return s.sizeBytes, nil
}

// sample is one sample that is appended to dst, or only measured: then dst is scratch.
type sample struct {
	*Tar
	dst       []byte
	write     bool
	sizeBytes int64
	limit     int64
	keyBytes  int // path begins with the key and a dot
}

func (s *sample) row(b *Batch, r int, ordinal int64) error {
	s.limit = s.maxBytes
	if s.limit <= 0 {
		s.limit = math.MaxInt64
	}
	s.path = append(s.path[:0], s.key...)
	for least := int64(1e8); least > max(ordinal, 1); least /= 10 {
		s.path = append(s.path, '0')
	}
	s.path = append(strconv.AppendInt(s.path, ordinal, 10), '.')
	s.keyBytes = len(s.path)
	if len(s.unnamed) > 0 {
		if err := s.json(s.unnamed, s.unnamedAt, b, r); err != nil {
			return err
		}
		for i := range s.unnamed {
			c := b.Columns[s.unnamedAt[i]]
			if s.unnamed[i].binary {
				if err := s.members(&s.unnamed[i], c.Vector, c.First+r, s.keyBytes); err != nil {
					return err
				}
			}
		}
	}
	for i := range s.named {
		c := b.Columns[s.namedAt[i]]
		if err := s.namedMember(&s.named[i], c.Vector, c.First+r); err != nil {
			return within(err, s.named[i].name)
		}
	}
	if s.sizeBytes == 0 {
		return s.json(nil, nil, b, r)
	}
	return nil
}

// json adds the member KEY.json.
func (s *sample) json(columns []node, at []int, b *Batch, r int) error {
	s.path = append(s.path[:s.keyBytes], "json"...)
	start := s.begin(true)
	dst, err := s.writer.row(s.dst, columns, at, b, r)
	if err != nil {
		return err
	}
	return s.written(dst, start)
}

// text adds a member that has the JSON text of a value.
func (s *sample) text(n *node, v *Vector, slot int) error {
	start := s.begin(false)
	dst, err := s.writer.value(s.dst, n, v, slot)
	if err != nil {
		return err
	}
	return s.written(dst, start)
}

// begin begins a member whose contents the writer appends in their place, and returns where it
// begins. Its header is written for its size later: only with 8 GiB it would be longer.
func (s *sample) begin(members bool) int {
	start := len(s.dst)
	if s.write {
		s.dst = tar.FileFraming{}.AppendHeader(s.dst, s.path, 0)
	}
	s.writer = writer{limit: limitOf(s.dst, max(s.left(), 1)), members: members, suffix: s.writer.suffix[:0]}
	return start
}

// written ends a member that begins at start of dst; dst ends with its contents.
func (s *sample) written(dst []byte, start int) error {
	size := int64(len(dst) - len(s.dst))
	header := len(s.dst) - start
	if !s.write {
		s.dst = dst[:start] // with the memory that dst has now
		return s.add(size)
	}
	s.dst = dst
	if (tar.FileFraming{}).HeaderBytes(len(s.path), size) != int64(header) {
		return errTooLong()
	}
	tar.FileFraming{}.AppendHeader(s.dst[:start], s.path, size)
	return s.end(size)
}

// copied adds a member with the given contents.
func (s *sample) copied(contents []byte) error {
	size := int64(len(contents))
	if !s.write || size > s.left() {
		return s.add(size)
	}
	s.dst = tar.FileFraming{}.AppendHeader(s.dst, s.path, size)
	s.dst = append(s.dst, contents...)
	return s.end(size)
}

// end pads a member.
func (s *sample) end(size int64) error {
	var zeros [512]byte
	s.dst = append(s.dst, zeros[:-size&(tar.FileFraming{}.AlignBytes()-1)]...)
	return s.add(size)
}

// add adds the size of a member with size bytes of contents.
func (s *sample) add(size int64) error {
	var framing tar.FileFraming
	align := framing.AlignBytes()
	s.sizeBytes += framing.HeaderBytes(len(s.path), size) + (size+align-1)&^(align-1)
	if s.sizeBytes > s.limit {
		return errTooLong()
	}
	return nil
}

func (s *sample) left() int64 { return s.limit - s.sizeBytes }

// members adds the binary values below a node, whose suffix begins after outer bytes of the path.
func (s *sample) members(n *node, v *Vector, slot, outer int) error {
	s.path = append(s.path[:outer], n.part...)
	return s.below(n, v, slot)
}

// below is members where the path already ends in the node's suffix.
func (s *sample) below(n *node, v *Vector, slot int) error {
	i := v.at(slot)
	if i < 0 {
		return nil
	}
	outer := len(s.path)
	switch {
	case n.Kind == Binary:
		value := v.bytes(i)
		s.path = appendKind(s.path, n.Type, value, nil)
		return s.copied(value)
	case n.image:
		if value, path := imageOf(n, v, i); value != nil {
			s.path = appendKind(s.path, n.bytesType(), value, path)
			return s.copied(value)
		}
	case n.Kind == Struct:
		for f := range n.kids {
			if n.kids[f].binary {
				s.path = append(append(s.path[:outer], '.'), n.kids[f].part...)
				if err := s.below(&n.kids[f], &v.Children[f], i); err != nil {
					return err
				}
			}
		}
	case n.Kind == List && n.binary:
		from, to := int(v.Offsets[i]), int(v.Offsets[i+1])
		for e := from; e < to; e++ {
			s.path = strconv.AppendInt(append(s.path[:outer], '.'), int64(e-from), 10)
			if err := s.below(&n.kids[0], &v.Children[0], e); err != nil {
				return err
			}
		}
	}
	return nil
}

// namedMember adds the member of a column that was named.
func (s *sample) namedMember(n *node, v *Vector, slot int) error {
	i := v.at(slot)
	if i < 0 {
		return nil
	}
	s.path = append(s.path[:s.keyBytes], n.name...)
	switch {
	case n.Kind == Binary:
		return s.copied(v.bytes(i))
	case n.image:
		if value, _ := imageOf(n, v, i); value != nil {
			return s.copied(value)
		}
		return nil
	case n.Kind == String, n.Kind == Number:
		if !utf8.Valid(v.bytes(i)) {
			return notUTF8(v.bytes(i))
		}
		return s.copied(v.bytes(i))
	}
	return s.text(n, v, slot)
}

// isImage reports whether a type is a struct of exactly the fields bytes and path, in either order,
// and returns the position of path.
func isImage(t *Type) (bool, int) {
	if t.Kind != Struct || len(t.Fields) != 2 {
		return false, 0
	}
	for i, f := range t.Fields {
		other := t.Fields[1-i]
		if f.Name == "path" && f.Type.Kind == String && other.Name == "bytes" && other.Type.Kind == Binary {
			return true, i
		}
	}
	return false, 0
}

// imageOf returns the bytes and the path of an image; nil bytes if they are null.
func imageOf(n *node, v *Vector, value int) (contents, path []byte) {
	vector := &v.Children[1-n.path]
	i := vector.at(value)
	if i < 0 {
		return nil, nil
	}
	if contents = vector.bytes(i); contents == nil {
		contents = none
	}
	if at := v.Children[n.path].at(value); at >= 0 {
		path = v.Children[n.path].bytes(at)
	}
	return contents, path
}

var none = []byte{}

// appendKind appends the last part of the suffix of a binary value, with a dot: by what the format
// defines, by its first bytes, by the extension of its path, or "bin".
func appendKind(dst []byte, t *Type, value, path []byte) []byte {
	dst = append(dst, '.')
	if t.Suffix != "" {
		return append(dst, t.Suffix...)
	}
	if k := magicKind(value); k != "" {
		return append(dst, k...)
	}
	e := extension(path)
	if e == nil {
		return append(dst, "bin"...)
	}
	for _, c := range e {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// magics are the kinds that values are recognized as, by bytes at an offset.
var magics = [...]struct {
	kind, magic string
	at          int
	riff        bool // after "RIFF" and four bytes
}{
	{kind: "jpg", magic: "\xff\xd8\xff"},
	{kind: "png", magic: "\x89PNG\r\n\x1a\n"},
	{kind: "gif", magic: "GIF8"},
	{kind: "flac", magic: "fLaC"},
	{kind: "ogg", magic: "OggS"},
	{kind: "mp3", magic: "ID3"},
	{kind: "pdf", magic: "%PDF"},
	{kind: "webp", magic: "WEBP", at: 8, riff: true},
	{kind: "wav", magic: "WAVE", at: 8, riff: true},
	{kind: "mp4", magic: "ftyp", at: 4},
}

func magicKind(value []byte) string {
	for i := range magics {
		m := &magics[i]
		if len(value) >= m.at+len(m.magic) && string(value[m.at:m.at+len(m.magic)]) == m.magic &&
			(!m.riff || string(value[:4]) == "RIFF") {
			return m.kind
		}
	}
	return ""
}

// maxExtension bounds what counts as the extension of a path.
const maxExtension = 8

// extension returns what follows the last dot of the last component of a path, if that is 1 to 8
// letters and digits of ASCII.
func extension(path []byte) []byte {
	base := path[bytes.LastIndexByte(path, '/')+1:]
	e := base[bytes.LastIndexByte(base, '.')+1:]
	if len(e) == len(base) || len(e) < 1 || len(e) > maxExtension {
		return nil
	}
	for _, c := range e {
		if !isPlain(c) || c == '_' || c == '-' {
			return nil
		}
	}
	return e
}

// sanitized returns a name as a component of a suffix: '_' for every byte outside of [A-Za-z0-9_-].
func sanitized(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !isPlain(c) {
			b[i] = '_'
		}
	}
	return string(b)
}
