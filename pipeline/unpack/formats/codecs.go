package formats

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/gzip"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lc0"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lz4"
	"github.com/lsiofs/lsiofs/pipeline/unpack/tar"
	"github.com/lsiofs/lsiofs/pipeline/unpack/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/unpack/zstd"
)

// numbered are all codecs, each at the place of its number less one. Stored indexes
// have the numbers: a new codec comes last, or the indexes' version is raised.
var numbered = []unpack.Codec{gzip.Codec{}, zstd.Codec{}, lz4.Codec{}, lc0.Game{}, lc0.Tar{}}

// named is how many of them stand behind the names of shards. The others are
// chosen by a format, whatever a name's ending.
const named = 3

// Codecs are the codecs of whole shards.
func Codecs() []unpack.Codec { return slices.Clone(numbered[:named]) }

// CodecNumber is the number that stands for a codec in stored indexes. It is 0 for nil,
// and for a codec that is not one of lsiofs'.
func CodecNumber(c unpack.Codec) uint32 { return uint32(slices.Index(numbered, c)) + 1 }

// NumberedCodec is the codec with that number; nil for 0 and for unknown numbers.
func NumberedCodec(number uint32) unpack.Codec {
	if number == 0 || int64(number) > int64(len(numbered)) {
		return nil
	}
	return numbered[number-1]
}

// ending is a file name's ending that stands for a codec; left is put in its
// place when it is taken off.
type ending struct {
	text, left string
	codec      unpack.Codec
}

// endings are those of all codecs. None is the end of another one.
var endings = func() (list []ending) {
	for _, c := range numbered[:named] {
		for text, left := range c.Extensions() {
			list = append(list, ending{text, left, c})
		}
	}
	return list
}()

// CodecHeadBytes is how much of a file CodecOf looks at.
const CodecHeadBytes = 4 << 10

// CodecOf returns the codec of a shard of a format that begins with head: of a shard that is
// told by its bytes the one that they show, whatever its name says; else what the format
// chooses, or the name says. head has the file's first CodecHeadBytes, or all of it.
func CodecOf(f unpack.Format, path string, head []byte) unpack.Codec {
	named := ParseName(path).Codec
	if own, ok := f.(unpack.OwnCodecs); ok {
		return own.Codec(path, named)
	}
	if _, directories := f.(unpack.Foldered); directories || f.Name() == "zarr" {
		return nil
	}
	if !unpack.ToldByBytes(f) {
		return named
	}
	return codecOf(path, head, f.Sniff(head))
}

// codecOf is the codec of a file that is told by its bytes. plain says that they are those of a
// shard that is not compressed: a TFRecord's first length may look like anything.
func codecOf(path string, head []byte, plain bool) unpack.Codec {
	named := ParseName(path).Codec
	if plain {
		return nil
	}
	// A file that ends within the first bytes of a codec is what its name says.
	if named != nil && len(head) < leastMagicBytes && beginsAs(named, head) {
		return named
	}
	skipped := zstd.Codec{}.Name()
	if named != nil {
		skipped = named.Name()
	}
	name := unpack.CodecName(head, skipped)
	for _, c := range Codecs() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

const leastMagicBytes = 4

// beginsAs reports whether so few bytes can be the first ones of a codec's file.
func beginsAs(c unpack.Codec, head []byte) bool {
	switch c.Name() {
	case "gzip":
		return strings.HasPrefix("\x1f\x8b\x08", string(head))
	case "zstd":
		return strings.HasPrefix("\x28\xb5\x2f\xfd", string(head))
	}
	return strings.HasPrefix("\x04\x22\x4d\x18", string(head))
}

// ContentCodec is CodecOf for a file of which no format is known yet.
func ContentCodec(path string, head []byte) unpack.Codec {
	return codecOf(path, head, tar.Format{}.Sniff(head) || tfrecord.Format{}.Sniff(head))
}
