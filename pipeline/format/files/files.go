// Package files makes samples from plain files. A directory is a shard, and is read as the tar
// archive that would contain its files.
//
//	directory   a.cls  a.jpg  b.jpg  README         in bytewise order of names
//	shard       │ header │ a.cls 0… │ header │ a.jpg 0… │ header │ b.jpg 0… │ header │ README 0… │
//	records     └───────────────── a ────────────────────┴──────── b ────────┴────── (no key) ────┘
//
// A record consists of all files whose paths are equal up to the first dot of the name. A file
// without a dot is a record of its own, without a key. Bytewise order puts the files of a record
// next to each other. Headers are written by Framing, a pure function of path and size, so the
// offsets of records are known without reading the files. Package storage/fileset presents
// directories in this form. The specification is pipeline/format/FILES.md.
package files

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// Name is the format's name.
const Name = "files"

// Format is the format.Format of files. Streams, framing and renaming are tar's.
type Format struct{ tar.Format }

var (
	_ format.Format   = Format{}
	_ format.Foldered = Format{}
	_ format.Opaque   = Format{}
	_ format.Framer   = Format{}
	_ format.Renamer  = Format{}
)

// Name returns "files".
func (Format) Name() string { return Name }

// AnyBytes implements format.Opaque.
func (Format) AnyBytes() {}

// Sniff returns false: a shard is a directory, which has no content to inspect.
func (Format) Sniff([]byte) bool { return false }

// Index implements format.Format for a directory's archive.
func (Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	return tar.IndexFiles(ctx, src, emit)
}

// FileFraming implements format.Foldered.
func (Format) FileFraming() format.FileFraming { return Framing{} }

// Framing is the framing of each file in a directory's archive. storage/fileset uses it.
type Framing struct{}

// HeaderBytes returns the number of bytes that AppendHeader appends for a path of pathBytes bytes.
func (Framing) HeaderBytes(pathBytes int, sizeBytes int64) int64 {
	return tar.FileHeaderBytes(pathBytes, sizeBytes)
}

// AppendHeader appends what precedes a file's contents. path is relative to the dataset's root.
func (Framing) AppendHeader(dst, path []byte, sizeBytes int64) []byte {
	return tar.AppendFileHeader(dst, path, sizeBytes)
}

// AlignBytes returns the alignment of contents: they are padded with zeros to a multiple of it.
func (Framing) AlignBytes() int64 { return 512 }
