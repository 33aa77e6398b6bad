// Package files makes samples of plain files: a directory is a shard, and reads
// as the tar archive that would hold its files.
//
//	directory   a.cls  a.jpg  b.jpg  README         in bytewise order of names
//	shard       │ header │ a.cls 0… │ header │ a.jpg 0… │ header │ b.jpg 0… │ header │ README 0… │
//	records     └───────────────── a ────────────────────┴──────── b ────────┴────── (no key) ────┘
//
// A record is the files whose names have the same path up to the first dot; one
// without a dot is a record of its own, without a key. Names with one such
// beginning follow each other in bytewise order, so a record is a run of files.
// Headers are written by Framing, a pure function of path and size, so where
// records lie is known without a look at the files. Package storage/folders
// presents directories so; RECORDS.md, "files", is the specification.
package files

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/tar"
)

// Name is the format's name.
const Name = "files"

// Format is files' unpack.Format: streams, framing and renaming are tar's.
type Format struct{ tar.Format }

var (
	_ unpack.Format   = Format{}
	_ unpack.Foldered = Format{}
	_ unpack.Framer   = Format{}
	_ unpack.Renamer  = Format{}
)

// Name is "files".
func (Format) Name() string { return Name }

// Extensions is empty: files is asked for and takes all files.
func (Format) Extensions() []string { return nil }

// Sniff is false: a shard is a directory, which has no contents to look at.
func (Format) Sniff([]byte) bool { return false }

// Index implements unpack.Format for a directory's archive.
func (Format) Index(ctx context.Context, src unpack.Source, emit func(unpack.Extent) error) error {
	return tar.IndexFiles(ctx, src, emit)
}

// FileFraming implements unpack.Foldered.
func (Format) FileFraming() unpack.FileFraming { return Framing{} }

// Framing is what a file has around it in a directory's archive. It is what
// storage/folders presents directories with.
type Framing struct{}

// HeaderBytes is how many bytes AppendHeader appends for a path of so many bytes.
func (Framing) HeaderBytes(pathBytes int, sizeBytes int64) int64 {
	return tar.FileHeaderBytes(pathBytes, sizeBytes)
}

// AppendHeader appends what comes before a file's contents. path is relative to
// the dataset's root.
func (Framing) AppendHeader(dst, path []byte, sizeBytes int64) []byte {
	return tar.AppendFileHeader(dst, path, sizeBytes)
}

// AlignBytes is what contents are filled up to a multiple of, with zeros.
func (Framing) AlignBytes() int64 { return 512 }
