package catalog

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// table is the formats and codecs that files are judged by.
type table struct {
	formats []unpack.Format // in the order in which they judge contents
	codecs  []unpack.Codec
	own     []unpack.Codec // that formats choose
	endings []ending       // of the codecs
	// make gives the format that was asked for with its parameters.
	make func(spec.Format) (unpack.Format, error)
}

// ending is a file name's ending that stands for a codec; left is put in its
// place when it is taken off.
type ending struct {
	text, left string
	codec      uint32
}

// firstOwn is the number of the first codec that formats choose: 1 to 3 are
// those that endings stand for.
const firstOwn = 4

// newTable is package formats' table. A codec's number is stored: codecs are
// only added at the end of their list, or imageVersion is raised.
func newTable() *table {
	t := &table{formats: formats.All(), codecs: formats.Codecs(), own: formats.OwnCodecs(), make: formats.New}
	for i, c := range t.codecs {
		for text, left := range c.Extensions() {
			t.endings = append(t.endings, ending{text, left, uint32(i) + 1})
		}
	}
	slices.SortFunc(t.endings, func(a, b ending) int { return strings.Compare(a.text, b.text) })
	return t
}

// format is the table's format of that name, or nil.
func (t *table) format(name string) unpack.Format {
	for _, f := range t.formats {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// codec gives the number of a file's codec, 0 for none, and the file's name
// without the codec's ending.
func (t *table) codec(path string) (number uint32, inner string) {
	for _, e := range t.endings {
		if stem, ok := strings.CutSuffix(path, e.text); ok && stem != "" && !strings.HasSuffix(stem, "/") {
			return e.codec, stem + e.left
		}
	}
	return 0, path
}

// byNumber is the codec of that number, nil for 0 and for unknown ones.
func (t *table) byNumber(number uint32) unpack.Codec {
	switch {
	case number >= firstOwn && int(number-firstOwn) < len(t.own):
		return t.own[number-firstOwn]
	case number >= 1 && int(number) <= len(t.codecs):
		return t.codecs[number-1]
	}
	return nil
}

// chosen gives the shards of a format the codecs that it chooses.
func (t *table) chosen(f unpack.Format, shards []candidate) {
	own, ok := f.(unpack.OwnCodecs)
	if !ok {
		return
	}
	for i := range shards {
		c := own.Codec(shards[i].object.Path, t.byNumber(shards[i].codec))
		shards[i].codec = 0
		if n := slices.Index(t.own, c); n >= 0 {
			shards[i].codec = uint32(n) + firstOwn
		} else if n := slices.Index(t.codecs, c); n >= 0 {
			shards[i].codec = uint32(n) + 1
		}
	}
}

// contested says whether a file with a name of format f may be another's.
func (t *table) contested(f unpack.Format, c candidate) bool {
	return c.codec == 0 && slices.ContainsFunc(t.formats, func(o unpack.Format) bool {
		own, ok := o.(unpack.OwnCodecs)
		return ok && o != f && own.Takes(c.object.Path)
	})
}

// takes says whether a file has a name of a format's shards.
func takes(f unpack.Format, c candidate) bool {
	if own, ok := f.(unpack.OwnCodecs); ok {
		return own.Takes(c.object.Path)
	}
	return hasExtension(f, c.inner)
}

// byExtension is the format one of whose endings the name has, or nil. inner is
// a name without its codec's ending.
func (t *table) byExtension(inner string) unpack.Format {
	for _, f := range t.formats {
		if hasExtension(f, inner) {
			return f
		}
	}
	return nil
}

func hasExtension(f unpack.Format, inner string) bool {
	base := inner[strings.LastIndexByte(inner, '/')+1:]
	for _, e := range f.Extensions() {
		if len(base) > len(e) && strings.HasSuffix(base, e) {
			return true
		}
	}
	return false
}

// extension is what of a name messages call its extension: the last one, with
// a codec's behind it. "" where there is none.
func (t *table) extension(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	number, inner := t.codec(base)
	if number == 0 {
		inner = base
	}
	dot := strings.LastIndexByte(inner, '.')
	switch {
	case dot < 0 && number == 0:
		return ""
	case dot < 0:
		return strings.TrimPrefix(base, inner)
	case number == 0:
		return base[dot:]
	}
	if strings.HasPrefix(base, inner) {
		return base[dot:]
	}
	return base[strings.LastIndexByte(base, '.'):]
}
