// Package formats has the table of formats, the table of codecs, and what follows from them: names,
// extensions, and which codec a shard has.
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
//	parquet   .parquet .parq .pq            a row                     parquet-format 2         everything; pages' checksums if present
//	tokens    .bin with .idx, .ds, requested L tokens, or a document  Megatron-LM, datatrove   descriptions, sizes
//
//	codec     shards                        decoding starts at        specification            checked when decoding
//	gzip      .gz .gzip .tgz                members                   RFC 1952                 crc32 and size
//	zstd      .zst .zstd .tzst              frames                    RFC 8878                 xxh64 if present
//	lz4       .lz4                          frames                    LZ4 Frame Format 1.6.4   xxh32 if present
//	lc0       the format's                  games                     RFC 1952, tar            crc32 and size of every game
//	parquet   the format's                  row groups                parquet-format 2         sizes, levels, indexes, crc32 if present
//
// pipeline/format/RECORDS.md and the pages that it lists are the specification of all of them.
//
// The tables are plain data. No code of a format runs before a dataset of it is opened.
package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/fixed"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/format/tables"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
	"github.com/lsiofs/lsiofs/pipeline/format/tokens"
	"github.com/lsiofs/lsiofs/pipeline/format/zarr"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// entry is a format.
type entry struct {
	// name is what Format.Name returns.
	name string
	// extensions are those of shards' names that imply the format, with the dot and without a
	// codec's (".tar", not ".tar.gz").
	extensions []string
	// requested are extensions that imply the format if it was requested, and only then.
	requested []string
	// directories means that shards are directories. Such formats are never detected.
	directories bool
	// content is the position among the formats that are detected from the contents of files
	// (SHARDS.md, CONTENTS), from 1; 0 for formats that can't be.
	content int
	// claims, if not empty, means that names with another format's extension do not rule out this
	// format, which is then an OwnCodecs. The first format.SniffBytes of such a shard contain this
	// text, which spares most other shards a closer look.
	claims string
	// checked describes what is checked in a shard when all of its bytes are read. A codec's
	// checksums are checked in addition.
	checked string
	// new returns the format with the parameters of a spec.
	new func(spec.Format) (format.Format, error)
	// resolve, if not nil, completes the parameters of a spec from the first shard of a dataset,
	// unless its As is set. It sets As to one of presentations.
	resolve       func(f spec.Format, raw io.ReaderAt, sizeBytes int64) (spec.Format, error)
	presentations []spec.As
}

// all are in the order in which messages and help list them.
var all = []entry{
	{
		name: "tar", extensions: []string{".tar"}, content: 2,
		checked: "each header's checksum, sizes, the end of the archive; contents of members have no checksum",
		new:     func(spec.Format) (format.Format, error) { return tar.Format{}, nil },
	},
	{
		name: "jsonl", extensions: []string{".jsonl", ".ndjson"}, content: 4,
		checked: "where lines end; lines have no checksum",
		new:     func(spec.Format) (format.Format, error) { return lines.JSONL(), nil },
	},
	{
		name: "lines", extensions: []string{".txt"},
		checked: "where lines end; lines have no checksum",
		new:     func(spec.Format) (format.Format, error) { return lines.Lines(), nil },
	},
	{
		name: "tfrecord", extensions: []string{".tfrecord", ".tfrecords", ".tfrec"}, content: 3,
		checked: "the crc32c of each length and of each record's data",
		new:     func(spec.Format) (format.Format, error) { return tfrecord.Format{}, nil },
	},
	{
		name: "npy", extensions: []string{".npy"},
		checked: "the header, one dtype and row shape in all shards, sizes; rows have no checksum",
		new:     func(spec.Format) (format.Format, error) { return npy.Format{}, nil },
	},
	{
		name:    "fixed",
		checked: "sizes; records have no checksum",
		new:     func(f spec.Format) (format.Format, error) { return fixed.New(f) },
	},
	{
		name: "lc0", content: 1, claims: ".gz",
		checked: "each game's gzip checksums, that it is frames of one version; with --lc0-check each frame's policy, values and result",
		new: func(f spec.Format) (format.Format, error) {
			if f.As != "" {
				return lc0.NewRows(f)
			}
			return lc0.New(f), nil
		},
	},
	{
		name: "files", directories: true,
		checked: "that each file can be read, and is what was indexed; contents have no checksum",
		new:     func(spec.Format) (format.Format, error) { return tar.Files{}, nil },
	},
	{
		name: "zarr", directories: true,
		checked: "that each object can be read and each chunk decoded, and checksums where arrays have them",
		new:     func(spec.Format) (format.Format, error) { return zarr.Format{}, nil },
	},
	{
		name: "parquet", extensions: []string{".parquet", ".parq", ".pq"}, content: 5,
		checked:       "that pages, levels and dictionaries agree with each other and with the footer, and pages' checksums if they have any",
		new:           tables.New,
		resolve:       tables.Resolve,
		presentations: []spec.As{spec.AsJSONL, spec.AsTar},
	},
	{
		name: "tokens", requested: []string{".bin", ".ds"},
		checked: "sizes, and that the file that describes a shard agrees with it; tokens have no checksum",
		new:     tokens.New,
	},
}

// find returns a format's line in the table, or nil.
func find(name string) *entry {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// Names returns the names of all formats, in the order in which help lists them.
func Names() []string { return names(func(*entry) bool { return true }) }

// names returns the names of some formats.
func names(of func(*entry) bool) (list []string) {
	for i := range all {
		if of(&all[i]) {
			list = append(list, all[i].name)
		}
	}
	return list
}

// New returns the format that a spec names; "auto" is not a name.
func New(f spec.Format) (format.Format, error) {
	if e := find(f.Name); e != nil {
		return e.new(f)
	}
	return nil, fmt.Errorf("--format %q is not known: formats are %s", f.Name, strings.Join(Names(), ", "))
}

// Unresolved reports whether parameters of a format depend on the first shard of the dataset.
func Unresolved(f spec.Format) bool {
	e := find(f.Name)
	return e != nil && e.resolve != nil && f.As == ""
}

// Resolutions returns what Resolve may return for f: f itself, unless it is Unresolved.
func Resolutions(f spec.Format) (list []spec.Format) {
	if !Unresolved(f) {
		return []spec.Format{f}
	}
	for _, as := range find(f.Name).presentations {
		f.As = as
		list = append(list, f)
	}
	return list
}

// Resolve completes the parameters of an Unresolved format from the first shard, of sizeBytes.
func Resolve(f spec.Format, raw io.ReaderAt, sizeBytes int64) (spec.Format, error) {
	return find(f.Name).resolve(f, raw, sizeBytes)
}

// Validate reports every problem of a spec at once: those of spec.Spec.Validate, and a format that
// there is not.
func Validate(s spec.Spec) error {
	name := s.Format.Name
	var err error
	if u, is := spec.UnsupportedFile("." + name); is {
		err = fmt.Errorf("--format %s: %s is not supported yet: %s", name, u.Title, u.Convert())
	} else if name != "auto" && find(name) == nil {
		err = fmt.Errorf("--format (%q) must be one of auto, %s", name, strings.Join(Names(), ", "))
	}
	return errors.Join(err, s.Validate())
}

// Checked describes what the format checks in a shard when all bytes are read. A codec's checksums
// are checked in addition.
func Checked(name string) string {
	if e := find(name); e != nil {
		return e.checked
	}
	return ""
}

// OfDirectories reports whether a format's shards are directories.
func OfDirectories(name string) bool {
	e := find(name)
	return e != nil && e.directories
}

func (e *entry) detected() bool { return len(e.extensions) > 0 || e.content > 0 }

// Detected returns the names of the formats that are detected if none is requested: by the names of
// shards, or by their contents.
func Detected() []string {
	return names((*entry).detected)
}

// IsDetected reports whether a format is one of Detected.
func IsDetected(name string) bool {
	e := find(name)
	return e != nil && e.detected()
}

// Requests reports whether a name implies a format that was requested.
func Requests(name string, n Name) bool {
	if n.Format != "" {
		return n.Format == name
	}
	e := find(name)
	return e != nil && slices.ContainsFunc(e.requested, func(x string) bool {
		_, has := cutEnding(n.Stem[strings.LastIndexByte(n.Stem, '/')+1:], x)
		return has
	})
}

// Pairs returns the formats whose shards may be described by other files (format.Paired).
func Pairs() []format.Paired { return []format.Paired{tokens.Format{}} }

// Has reports whether there is a format of that name.
func Has(name string) bool { return find(name) != nil }

// OfContent returns the names of the formats that are detected from the contents of files, in the
// order in which they are tried.
func OfContent() []string { return slices.Clone(ofContent()) }

var ofContent = sync.OnceValue(func() []string {
	list := names(func(e *entry) bool { return e.content > 0 })
	slices.SortFunc(list, func(a, b string) int { return find(a).content - find(b).content })
	return list
})

// Claiming returns the formats that may claim a file whose first format.SniffBytes are head,
// although the extension of its name is another format's.
func Claiming(head []byte) ([]format.OwnCodecs, error) {
	var list []format.OwnCodecs
	for i := range all {
		if e := &all[i]; e.claims != "" && bytes.Contains(head, []byte(e.claims)) {
			f, err := e.new(spec.Format{Name: e.name})
			if err != nil {
				return nil, err
			}
			list = append(list, f.(format.OwnCodecs))
		}
	}
	return list, nil
}
