package discover

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// named is the format of that name, or nil.
func (f *finder) named(name string) unpack.Format {
	for _, x := range f.formats {
		if x.Name() == name {
			return x
		}
	}
	return nil
}

// choose gives the shards of a format the codecs that it chooses.
func choose(f unpack.Format, shards []candidate) {
	own, ok := f.(unpack.OwnCodecs)
	if !ok {
		return
	}
	for i := range shards {
		shards[i].Codec = own.Codec(shards[i].Object.Path, shards[i].Codec)
	}
}

// contested says whether a file with a name of format x may be another's.
func (f *finder) contested(x unpack.Format, c candidate) bool {
	return c.Codec == nil && slices.ContainsFunc(f.formats, func(o unpack.Format) bool {
		own, ok := o.(unpack.OwnCodecs)
		return ok && o != x && own.Takes(c.Object.Path)
	})
}

// takes says whether a file has a name of a format's shards.
func takes(f unpack.Format, c candidate) bool {
	if own, ok := f.(unpack.OwnCodecs); ok {
		return own.Takes(c.Object.Path)
	}
	return hasExtension(f, c.inner)
}

// byExtension is the format one of whose endings the name has, or nil. inner is
// a name without its codec's ending.
func (f *finder) byExtension(inner string) unpack.Format {
	for _, x := range f.formats {
		if hasExtension(x, inner) {
			return x
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
func extension(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	inner, codec := formats.Split(base)
	dot := strings.LastIndexByte(inner, '.')
	switch {
	case dot < 0 && codec == nil:
		return ""
	case dot < 0:
		return strings.TrimPrefix(base, inner)
	case codec == nil:
		return base[dot:]
	}
	if strings.HasPrefix(base, inner) {
		return base[dot:]
	}
	return base[strings.LastIndexByte(base, '.'):]
}
