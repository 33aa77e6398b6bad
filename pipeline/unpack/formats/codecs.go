package formats

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/gzip"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lc0"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lz4"
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

// Split takes a codec's extension off the path of a shard: "a/b.tar.gz" and "a/b.tgz"
// give "a/b.tar" and gzip; "a/b.tar" gives itself and nil. Extensions are compared as
// written, in lower case.
func Split(path string) (stem string, codec unpack.Codec) {
	for _, e := range endings {
		if stem, found := strings.CutSuffix(path, e.text); found && stem != "" && !strings.HasSuffix(stem, "/") {
			return stem + e.left, e.codec
		}
	}
	return path, nil
}
