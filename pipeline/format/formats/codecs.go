package formats

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

// numbered are all codecs, each at the index of its number less one. Stored indexes contain the
// numbers: a new codec must be appended, or the indexes' version raised.
var numbered = []format.Codec{gzip.Codec{}, zstd.Codec{}, lz4.Codec{}, lc0.Game{}, lc0.Tar{}}

// named is how many of them are implied by the names of shards. The others are chosen by a format,
// whatever a name's ending.
const named = 3

// Codecs returns the codecs of whole shards.
func Codecs() []format.Codec { return slices.Clone(numbered[:named]) }

// CodecNumber returns the number of a codec in stored indexes. It is 0 for nil, and for a codec
// that is not one of lsiofs's.
func CodecNumber(c format.Codec) uint32 { return uint32(slices.Index(numbered, c)) + 1 }

// NumberedCodec returns the codec with that number; nil for 0 and for unknown numbers.
func NumberedCodec(number uint32) format.Codec {
	if number == 0 || int64(number) > int64(len(numbered)) {
		return nil
	}
	return numbered[number-1]
}

// ending is a file name ending that implies a codec; left replaces it when it is removed.
type ending struct {
	text, left string
	codec      format.Codec
}

// endings are those of all codecs. None is a suffix of another one.
var endings = func() (list []ending) {
	for _, c := range numbered[:named] {
		for text, left := range c.Extensions() {
			list = append(list, ending{text, left, c})
		}
	}
	return list
}()

// CodecHeadBytes is how much of a file CodecOf inspects.
const CodecHeadBytes = 4 << 10

// CodecOf returns the codec of a shard of a format that begins with head. If the format is
// recognized by its bytes, it is the codec that head shows, whatever the name implies; else the one
// that the format chooses, or that the name implies. head has the file's first CodecHeadBytes, or
// all of it.
func CodecOf(f format.Format, path string, head []byte) format.Codec {
	named := ParseName(path).Codec
	if own, ok := f.(format.OwnCodecs); ok {
		return own.Codec(path, named)
	}
	if _, directories := f.(format.Foldered); directories || f.Name() == "zarr" {
		return nil
	}
	if !format.ToldByBytes(f) {
		return named
	}
	return codecOf(path, head, f.Sniff(head))
}

// codecOf returns the codec of a file that is recognized by its bytes. plain means that head is
// that of an uncompressed shard: a TFRecord's first length may look like anything.
func codecOf(path string, head []byte, plain bool) format.Codec {
	named := ParseName(path).Codec
	if plain {
		return nil
	}
	// A file that ends within the first bytes of a codec is what its name implies.
	if named != nil && len(head) < leastMagicBytes && beginsAs(named, head) {
		return named
	}
	skipped := zstd.Codec{}.Name()
	if named != nil {
		skipped = named.Name()
	}
	name := format.CodecName(head, skipped)
	for _, c := range Codecs() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

const leastMagicBytes = 4

// beginsAs reports whether these few bytes can be the first ones of a codec's file.
func beginsAs(c format.Codec, head []byte) bool {
	switch c.Name() {
	case "gzip":
		return strings.HasPrefix("\x1f\x8b\x08", string(head))
	case "zstd":
		return strings.HasPrefix("\x28\xb5\x2f\xfd", string(head))
	}
	return strings.HasPrefix("\x04\x22\x4d\x18", string(head))
}

// ContentCodec is CodecOf for a file whose format is not known yet.
func ContentCodec(path string, head []byte) format.Codec {
	return codecOf(path, head, tar.Format{}.Sniff(head) || tfrecord.Format{}.Sniff(head))
}
