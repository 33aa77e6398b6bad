// Package formats is the table of formats and codecs.
//
//	name      shards                        record                    specification            checked by the index pass
//	tar       .tar                          a WebDataset sample       POSIX.1-2017 pax, GNU    every header's checksum, sizes, the end
//	jsonl     .jsonl .ndjson                a line                    JSON Lines               lines; that the first one is JSON
//	lines     .txt                          a line                    —                        lines
//	tfrecord  .tfrecord .tfrecords .tfrec   a frame                   record_writer.h          every length's crc32c; lsiofs verify and reads: the data's
//	npy       .npy                          a row                     numpy.lib.format         the header, the length; one dtype and row shape in all shards
//	fixed     requested                     N bytes every S from H    —                        the remainder
//	lc0       .gz .tar, by content          a frame of a game         lc0's trainingdata       every game's checksum and length; --lc0-check: every frame
//	files     directories, requested        files with one key        POSIX.1-2017 pax         nothing: contents are not read
//	zarr      directories, requested        a crop of arrays          Zarr v3, v2; blosc 1     documents, indexes of shards
//
//	codec     shards                        decoding starts at        specification            checked when decoding
//	gzip      .gz .gzip .tgz                members                   RFC 1952                 crc32 and size
//	zstd      .zst .zstd .tzst              frames                    RFC 8878                 xxh64 if present
//	lz4       .lz4                          frames                    LZ4 Frame Format 1.6.4   xxh32 if present
//	lc0       the format's                  games                     RFC 1952, tar            crc32 and size of every game
//
// pipeline/format/RECORDS.md and the pages that it lists are the specification of all of them.
package formats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/files"
	"github.com/lsiofs/lsiofs/pipeline/format/fixed"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/format/zarr"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// All returns the formats without parameters, in the order in which detection calls their Sniff.
func All() []format.Format { return slices.Clone(all) }

var all = []format.Format{tar.Format{}, tfrecord.Format{}, lines.JSONL(), lc0.Format{}, lines.Lines(), npy.Format{}, files.Format{}, zarr.Format{}}

// New returns the format that a spec names; "auto" is not a name.
func New(f spec.Format) (format.Format, error) {
	switch f.Name {
	case "fixed":
		return fixed.New(f)
	case "lc0":
		if f.As != "" {
			return lc0.NewRows(f)
		}
		return lc0.New(f), nil
	}
	for _, format := range All() {
		if format.Name() == f.Name {
			return format, nil
		}
	}
	return nil, fmt.Errorf("--format %q is not known: formats are %s", f.Name, strings.Join(spec.Formats, ", "))
}

// Checked describes what the format checks in a shard when all bytes are read. A codec's checksums
// are checked in addition.
func Checked(name string) string {
	switch name {
	case "tar":
		return "each header's checksum, sizes, the end of the archive; contents of members have no checksum"
	case "jsonl", "lines":
		return "where lines end; lines have no checksum"
	case "tfrecord":
		return "the crc32c of each length and of each record's data"
	case "npy":
		return "the header, one dtype and row shape in all shards, sizes; rows have no checksum"
	case "lc0":
		return "each game's gzip checksums, that it is frames of one version; with --lc0-check each frame's policy, values and result"
	case "fixed":
		return "sizes; records have no checksum"
	case "files":
		return "that each file can be read, and is what was indexed; contents have no checksum"
	case "zarr":
		return "that each object can be read and each chunk decoded, and checksums where arrays have them"
	}
	return ""
}
