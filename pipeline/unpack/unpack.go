// Package unpack is the contract between shards and records: where records
// begin and end in a shard's decoded bytes, and what a codec, a format and a
// stream's framing have to offer. Each format and each codec is a package of
// its own below this one; package formats holds the table of them; frames is what
// the codecs zstd and lz4 share; unpacktest is the suite that all pass. RECORDS.md
// is the specification.
//
// Formats see a Source: the decoded bytes of one shard, read forward once.
// Uncompressed shards give a source that skips what nobody looks at, compressed
// ones a source that decodes.
package unpack

import (
	"context"
	"fmt"
	"io"
)

// Extent is one record as the index pass found it, in file order.
//
// [OffsetBytes, OffsetBytes+SizeBytes) are the record's bytes in the decoded
// shard, and SizeBytes its size in a stream before the equal-key rule. There is
// one case in which the record ends one byte beyond the shard: a last line
// without its newline; that byte is then a '\n'.
type Extent struct {
	OffsetBytes, SizeBytes int64
	// KeyHash is the xxh3 of the sample key, for formats that are Renamers; 0 for
	// a record that has none, which equals no other.
	KeyHash uint64
	// Growth[d-1] is by how many bytes the record grows under the equal-key
	// rule when its position has d decimal digits; nil when it never does.
	// The slice is valid during the call only.
	Growth []int64
}

// MaxDigits is the greatest number of decimal digits of a position, and the
// length of Extent.Growth.
const MaxDigits = 20

// Source is a decoded shard, read forward once. It is not for concurrent use.
//
// Errors other than io.EOF are sticky. A source ends with io.EOF only at the
// shard's true end; where its bytes can't be had or trusted it gives another
// error (a *CorruptError where a codec found damage), and a format passes that
// on as it is.
type Source interface {
	// Window returns the bytes that follow, at least min of them and as many
	// as are at hand, without consuming any. Fewer than min come only with an
	// error (io.EOF at the shard's end). The slice is valid until the next
	// call. min is at most MaxWindowBytes: formats look at headers and at
	// separators through it, never at a whole record.
	Window(min int) ([]byte, error)
	// Discard consumes n bytes, which need not be read. It fails with
	// io.ErrUnexpectedEOF when the shard ends before; OffsetBytes is then the
	// decoded shard's size.
	Discard(n int64) error
	// OffsetBytes is the offset in the decoded shard of the next byte.
	OffsetBytes() int64
}

// MaxWindowBytes bounds Source.Window: room for the largest extension header
// of a tar that is accepted, and for an npy header.
const MaxWindowBytes = 1 << 20

// What a shard may be at most, whatever it claims; beyond, it is refused. Numbers
// of shards that hold to it can be added up without a thought, and a few bytes
// that decode to any number of others end.
const (
	// MaxShardBytes is the size of a file: some file systems have sparse ones of
	// nearly 2⁶³ bytes.
	MaxShardBytes = 1 << 56
	// MaxDecodedBytes is what a compressed shard may decode to.
	MaxDecodedBytes = 1 << 40
	// MaxMembers is how many members or frames a compressed shard may have, of
	// which each takes 16 bytes of memory, and of the index.
	MaxMembers = 1 << 26
)

// Format finds records. Values are immutable and safe for concurrent use.
type Format interface {
	// Name is the format's name on the command line.
	Name() string
	// Extensions are the file name endings of the format's shards, with the
	// dot and without a codec's (".tar", not ".tar.gz").
	Extensions() []string
	// StreamExtension is the ending of a stream's name, with the dot. shard is
	// the path of the first shard without its codec's ending.
	StreamExtension(shard string) string
	// Sniff says whether a shard that begins so is of this format. head has
	// min(decoded shard, SniffBytes) bytes.
	Sniff(head []byte) bool
	// Index calls emit for each record of src in file order, and returns nil
	// at the shard's end. A record is emitted only once the bytes that show
	// its end have been seen intact. Damage is a *CorruptError; what is
	// refused whatever the policy is a *RefusedError; an error of emit or src
	// is returned as it is.
	Index(ctx context.Context, src Source, emit func(Extent) error) error
}

// SniffBytes is how much of a shard Format.Sniff looks at: a tar header, and a
// first line of JSON of up to about 64 KiB.
const SniffBytes = 64 << 10

// Verifier is implemented by formats whose records carry checksums that the
// index pass does not look at. Verify gets a whole record as it is in the shard.
type Verifier interface {
	Verify(record []byte) error
}

// Unitary is implemented by formats that say what a split keeps together unless
// it is told: with SplitByUnit, the records from one entry point to the next (a
// game); else each record goes by itself.
type Unitary interface {
	SplitByUnit() bool
}

// Foldered is implemented by formats whose shards are directories: a storage
// presents each of them as the shard that it would be with the files in it one
// after the other, with what FileFraming says around each. They are never found by
// themselves, as a directory has no contents to look at.
type Foldered interface {
	Format
	FileFraming() FileFraming
}

// FileFraming is what a file has around it in the shard that its directory is. It is
// pure, and safe for concurrent use.
type FileFraming interface {
	// HeaderBytes is how many bytes AppendHeader appends for a path of so many
	// bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends what comes before the contents of a file. path is
	// relative to the root, and valid during the call only.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes is what contents are filled up to a multiple of, with zeros.
	AlignBytes() int64
}

// Framer is implemented by formats whose streams have bytes before or after
// the records. Both are pure functions of the number of records n. What they
// give may be shared and is not to be changed.
type Framer interface {
	Prologue(n uint64) []byte
	Epilogue(n uint64) []byte
}

// Renamer is implemented by formats to whose streams ORDER.md's equal-key rule
// applies. Rename appends to dst the record as it is at position of a stream,
// right behind one with an equal key. The number of bytes appended is
// len(record) plus the growth that Index told.
type Renamer interface {
	Rename(dst, record []byte, position uint64) ([]byte, error)
}

// Uniform is implemented by formats that demand that all shards of a dataset
// are of one kind: npy of one dtype and row shape, lc0 of one version.
//
// A kind is a short text, at most MaxKindBytes, kept in the index for each shard
// and shown to people. The kind of a dataset is that of its first shard with
// records. Shards of another kind are refused, whatever --on-corrupt says.
type Uniform interface {
	Format
	// IndexKind is Index, which tells the kind of the shard's records too: in
	// each pass anew, and beside an error as well, of what was emitted before
	// it. Records of two kinds in one shard are a *RefusedError. The kind of a
	// shard without records plays no part, and may be empty.
	IndexKind(ctx context.Context, src Source, emit func(Extent) error) (kind string, err error)
	// SameKind says whether shards of two kinds that are written differently
	// may be in one dataset. Both come from IndexKind.
	SameKind(a, b string) bool
	// OfKind is the format for streams of a dataset of that kind, which comes
	// from IndexKind or, through the index, from that of an earlier run: what
	// this one would not have told is an error.
	OfKind(kind string) (Format, error)
}

// MaxKindBytes bounds the text of a kind: what an npy header of version 1.0 holds,
// of which a byte may take two in UTF-8.
const MaxKindBytes = 128 << 10

// Codec decodes whole-shard compression. Values are immutable and safe for
// concurrent use.
type Codec interface {
	// Name is "gzip", "zstd" or "lz4".
	Name() string
	// Extensions maps file name endings to the ending that is left when the
	// codec's is taken off: ".gz" → "", ".tgz" → ".tar".
	Extensions() map[string]string
	// NewDecoder makes a decoder of raw bytes that begin at offset rawOffset
	// of the shard, at the first byte of a member.
	NewDecoder(raw io.Reader, rawOffset int64) (Decoder, error)
}

// Decoder decodes the members (gzip) or frames (zstd, lz4) of a shard one after
// the other, as archive/tar walks its entries. It is not for concurrent use.
type Decoder interface {
	// Next goes on to the next member and returns the offset in the shard of
	// its first raw byte, or io.EOF where none follows. It passes over what is
	// left of the member before it (decoding it), skippable frames, and what
	// else the codec permits between members and after the last.
	Next() (rawOffset int64, err error)
	// Read reads the member's decoded bytes, and gives io.EOF at its end once
	// its checksum has been found right. Damage is a *CorruptError whose
	// RawOffset is the first byte of the member; its OffsetBytes is of no use,
	// since a decoder does not know where it was opened (Decoded does).
	Read(p []byte) (int, error)
	// MemoryBytes is about how much the decoder holds.
	MemoryBytes() int64
	Close()
}

// CorruptError is damage found in a shard: bytes that are not what the format
// or the codec says. Everything from OffsetBytes on is lost.
type CorruptError struct {
	// Record is the ordinal of the record that the damage keeps from being
	// read, -1 where none can be named.
	Record int64
	// OffsetBytes is the place in the decoded shard.
	OffsetBytes int64
	// RawOffset is the first byte in the file of the member that is damaged,
	// or -1 for a shard that is not compressed.
	RawOffset int64
	// Part names the part of the shard that is damaged, such as a game in a
	// tar of games; "" where the shard is not made of parts.
	Part   string
	Reason string
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("offset %d", e.OffsetBytes)
	if e.Record >= 0 {
		s = fmt.Sprintf("record %d at offset %d", e.Record, e.OffsetBytes)
	}
	if e.RawOffset >= 0 {
		s += fmt.Sprintf(" (compressed member at byte %d of the file)", e.RawOffset)
	}
	if e.Part != "" {
		s += ": " + e.Part
	}
	return s + ": " + e.Reason
}

// Corrupt makes the damage that a format finds: at offsetBytes of the decoded
// shard, from where on record can't be had.
func Corrupt(record, offsetBytes int64, format string, args ...any) *CorruptError {
	return &CorruptError{Record: record, OffsetBytes: offsetBytes, RawOffset: -1, Reason: fmt.Sprintf(format, args...)}
}

// RefusedError is something that lsiofs does not read, whatever --on-corrupt says.
type RefusedError struct {
	OffsetBytes int64
	Reason      string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("offset %d: %s", e.OffsetBytes, e.Reason) }
