package formats

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/tables"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

// codecs are all codecs, each at the index of its number less one. Stored indexes contain the
// numbers: a new codec must be appended, or the indexes' version raised. The first bytes of a
// codec's files are in format/foreign.go, with those of other kinds of files.
var codecs = [...]struct {
	codec format.Codec
	// name is what Codec.Name returns.
	name string
	// endings of file names imply the codec. A codec without any is chosen by a format, whatever
	// the ending of a name.
	endings []ending
}{
	{gzip.Codec{}, "gzip", []ending{{".gz", ""}, {".gzip", ""}, {".tgz", ".tar"}}},
	{zstd.Codec{}, "zstd", []ending{{".zst", ""}, {".zstd", ""}, {".tzst", ".tar"}}},
	{lz4.Codec{}, "lz4", []ending{{".lz4", ""}}},
	{lc0.Game{}, "lc0 game", nil},
	{lc0.Tar{}, "lc0 tar", nil},
	{&tables.Codec{}, "parquet", nil},
}

// ending is a file name ending that implies a codec; left replaces it when it is removed. No ending
// is a suffix of another one.
type ending struct{ text, left string }

// Codecs returns the codecs of whole shards.
func Codecs() (list []format.Codec) {
	for i := range codecs {
		if len(codecs[i].endings) > 0 {
			list = append(list, codecs[i].codec)
		}
	}
	return list
}

// CodecNumber returns the number of a codec in stored indexes. It is 0 for nil, and for a codec
// that is not one of lsiofs's.
func CodecNumber(c format.Codec) uint32 {
	_, ranges := c.(format.RangeCodec) // of which each shard has one of its own
	for i := range codecs {
		if codecs[i].codec == c || ranges && codecs[i].name == c.Name() {
			return uint32(i) + 1
		}
	}
	return 0
}

// NumberedCodec returns the codec with that number; nil for 0 and for unknown numbers.
func NumberedCodec(number uint32) format.Codec {
	if number == 0 || int64(number) > int64(len(codecs)) {
		return nil
	}
	return codecs[number-1].codec
}

// namedCodec returns the codec of a name, or nil.
func namedCodec(name string) format.Codec {
	for i := range codecs {
		if codecs[i].name == name {
			return codecs[i].codec
		}
	}
	return nil
}

// nameOf returns the name of a codec; "" for nil.
func nameOf(c format.Codec) string {
	if number := CodecNumber(c); number > 0 {
		return codecs[number-1].name
	}
	return ""
}

// cutCodec removes a codec's ending from a base name. left is what the ending implies besides.
func cutCodec(base string) (stem, left string, codec format.Codec) {
	for i := range codecs {
		for _, e := range codecs[i].endings {
			if stem, has := cutEnding(base, e.text); has {
				return stem, e.left, codecs[i].codec
			}
		}
	}
	return base, "", nil
}

// WithoutCodec removes the endings of codecs from an extension in lower case, such as ".tar.gz".
func WithoutCodec(extension string) string {
	for i := range codecs {
		for _, e := range codecs[i].endings {
			extension = strings.TrimSuffix(extension, e.text)
		}
	}
	return extension
}

// CodecHeadBytes is how much of a file CodecOf inspects.
const CodecHeadBytes = 4 << 10

// CodecOf returns the codec of a shard of a format that begins with head. If the format is
// recognized by its bytes, it is the codec that head shows, whatever the name implies; else the one
// that the format chooses, or that the name implies. head has the file's first CodecHeadBytes, or
// all of it.
func CodecOf(f format.Format, path string, head []byte) format.Codec {
	named := ParseName(path).Codec
	if own, ok := f.(format.Coded); ok {
		return own.Codec(path, named)
	}
	if OfDirectories(f.Name()) {
		return nil
	}
	if !format.ToldByBytes(f) {
		return named
	}
	return codecOf(named, head, f.Sniff)
}

// ContentCodec is CodecOf for a file whose format is not known yet.
func ContentCodec(path string, head []byte) format.Codec {
	return codecOf(ParseName(path).Codec, head, func(head []byte) bool {
		return tar.Format{}.Sniff(head) || tfrecord.Format{}.Sniff(head)
	})
}

// codecOf returns the codec of a file that is recognized by its bytes, and whose name implies the
// codec named, or none. isPlain reports whether head is that of an uncompressed shard: a TFRecord's
// first length may look like anything.
func codecOf(named format.Codec, head []byte, isPlain func(head []byte) bool) format.Codec {
	c := namedCodec(format.CodecName(head, nameOf(named)))
	if c == nil || isPlain(head) {
		return nil
	}
	return c
}
