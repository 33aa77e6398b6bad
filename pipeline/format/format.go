// Package format defines the interfaces between shards and records: what a format must provide
// (where records begin and end in a shard's decoded bytes), what a codec must provide, and what a
// stream has around its records. RECORDS.md and the pages that it lists are the
// specification.
//
//	file ──► Codec (gzip, zstd, …) ──► Source: decoded bytes ──► Format ──► Extents
//	                                                              └─► Kind, damage
//
// Formats read a Source: the decoded bytes of one shard, read forward once. The source of an
// uncompressed shard skips bytes that no format inspects; the source of a compressed one decodes.
//
// Each format and each codec is a package below this one. formats has the table of them, and
// formattest the test suite that all of them pass. FrameCodec is what the codecs zstd and lz4
// share.
package format

import (
	"context"
	"embed"
	"fmt"
	"io"
	"strings"
)

// Extent is one record as found by the index pass, in file order.
//
// [OffsetBytes, OffsetBytes+SizeBytes) are the record's bytes in the decoded shard. SizeBytes is
// its size in a stream before the equal-key rule. In one case the record ends one byte after the
// shard: a last line without a newline. That byte is then '\n'.
type Extent struct {
	OffsetBytes, SizeBytes int64
	// KeyHash is the xxh3 of the sample key, for formats that are Renamers. It is 0 for
	// a record without a key, which equals no other.
	KeyHash uint64
	// Growth[d-1] is the number of bytes by which the record grows under the equal-key rule if its
	// position has d decimal digits. It is nil if the record never grows. The slice is valid only
	// during the call.
	Growth []int64
}

// MaxDigits is the greatest number of decimal digits of a position, and the length of
// Extent.Growth.
const MaxDigits = 20

// Source is a decoded shard, read forward once. It is not safe for concurrent use.
//
// Errors other than io.EOF are sticky. A source returns io.EOF only at the shard's true end. If its
// bytes can't be read or trusted, it returns another error (a *CorruptError if a codec found
// damage), which the format returns unchanged.
type Source interface {
	// Window returns the next bytes without consuming them: at least min, and more if they are
	// buffered. It returns fewer than min only with an error (io.EOF at the shard's end). The slice
	// is valid until the next call. min is at most MaxWindowBytes: formats inspect headers and
	// separators through it, never a whole record.
	Window(min int) ([]byte, error)
	// Discard consumes n bytes, which need not be read. It fails with io.ErrUnexpectedEOF if the
	// shard ends earlier; OffsetBytes is then the decoded shard's size.
	Discard(n int64) error
	// OffsetBytes returns the offset in the decoded shard of the next byte.
	OffsetBytes() int64
}

// MaxWindowBytes bounds Source.Window. It is enough for the largest accepted tar extension header,
// and for an npy header.
const MaxWindowBytes = 1 << 20

// Limits of a shard, whatever it claims; a larger one is refused. Within them sizes can be added
// without overflow, and a small file that decodes endlessly is stopped.
const (
	// MaxShardBytes bounds the size of a file: some file systems have sparse files of
	// nearly 2⁶³ bytes.
	MaxShardBytes = 1 << 56
	// MaxDecodedBytes bounds what a compressed shard may decode to.
	MaxDecodedBytes = 1 << 40
	// MaxMembers bounds the members or frames of a compressed shard. Each takes 16 bytes of memory
	// and of the index.
	MaxMembers = 1 << 26
)

// Format finds records. Values are immutable and safe for concurrent use.
type Format interface {
	// Name returns the format's name on the command line.
	Name() string
	// StreamExtension returns the extension of a stream's name, with the dot. shard is the path of
	// the first shard without its codec's extension.
	StreamExtension(shard string) string
	// Sniff reports whether a shard that begins with head is of this format. head has min(decoded
	// shard, SniffBytes) bytes.
	Sniff(head []byte) bool
	// Index calls emit for each record of src in file order, and returns nil at the shard's end. It
	// emits a record only after it has read, intact, the bytes that determine the record's end.
	// Damage is a *CorruptError. Input that is refused under every policy is a *RefusedError. An
	// error of emit or src is returned unchanged.
	Index(ctx context.Context, src Source, emit func(Extent) error) error
}

// Beginner is implemented by formats that refuse some shards by their first bytes: those of a file
// that is certainly of another kind, although nothing in it is damaged.
type Beginner interface {
	// RefuseBegin returns why a shard that begins with head is refused, "" if it is not. whole
	// means that head is the whole shard; else it has SniffBytes.
	RefuseBegin(head []byte, whole bool) string
}

// Emptyable is implemented by formats in which an empty file is a shard without records. In all
// others it is damaged.
type Emptyable interface {
	Format
	// EmptyShards does nothing; it marks the format.
	EmptyShards()
}

// Opaque is implemented by formats whose shards can begin with any bytes. Shards of all others can
// be distinguished by their first bytes from files of other kinds, and from compressed ones.
type Opaque interface {
	Format
	// AnyBytes does nothing; it marks the format.
	AnyBytes()
}

// SniffBytes is how much of a shard is passed to Format.Sniff: enough for a tar header, and for a
// first line of JSON of up to about 64 KiB.
const SniffBytes = 64 << 10

// Verifier is implemented by formats whose records contain checksums that the index pass does not
// verify. Verify checks a whole record as it is in the shard. Its error is a RecordDamage.
type Verifier interface {
	Verify(record []byte) error
	// NewCheck returns a Check that finds the same damage as Verify.
	NewCheck() Check
}

// Check checks one record after another, whose bytes are passed in pieces. It holds only a few
// bytes, however large a record is.
type Check interface {
	// Begin begins a record of sizeBytes.
	Begin(sizeBytes int64)
	// Add adds the next bytes of the record.
	Add(piece []byte)
	// End returns what is wrong with the record after all its bytes were added: a RecordDamage, or
	// nil.
	End() error
}

// RecordDamage describes why a record does not match its own checksum.
type RecordDamage string

func (d RecordDamage) Error() string { return string(d) }

// Unitary is implemented by formats that determine what a split keeps together by default. If
// SplitByUnit returns true, it is the records from one entry point to the next (a game); else it is
// each record alone.
type Unitary interface {
	SplitByUnit() bool
}

// Headed is implemented by formats whose record offsets follow from a shard's header and its size:
// in an uncompressed shard, Index inspects only the first bytes.
type Headed interface {
	// HeadBytes returns how many bytes are read first. They contain the header of most shards.
	HeadBytes() int
}

// Foldered is implemented by formats whose shards are directories. A storage presents a directory
// as one shard: its files, one after another, with a header before each and zeros after it. Such
// formats are never detected, because a directory has no content to inspect. The methods about
// headers are pure, and safe for concurrent use.
type Foldered interface {
	Format
	// HeaderBytes returns the number of bytes that AppendHeader appends for a path of pathBytes
	// bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends what precedes a file's contents. path is relative to the root, and valid
	// only during the call.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes returns the alignment of contents: they are padded with zeros to a multiple of it.
	AlignBytes() int64
}

// Paired is implemented by formats whose shards may be described by a second file beside them: where
// records end in X.bin, by X.idx. Such a file is not a shard. If it changes, so has the shard.
type Paired interface {
	Format
	// Companion returns the path of the file that may describe a shard, "" if none does.
	Companion(shard string) string
	// Describes reports whether a file at the path of a companion describes a shard of this format,
	// as far as its first bytes show. Errors are read errors.
	Describes(path string, raw io.ReaderAt, sizeBytes int64) (bool, error)
	// With returns the format for one shard, whose index pass reads its companion: raw, of sizeBytes.
	// The format is valid as long as raw, and not safe for concurrent use. Without it, nothing
	// describes the shard.
	With(path string, raw io.ReaderAt, sizeBytes int64) Format
}

// Framer is implemented by formats whose streams have bytes before or after the records.
// Both methods are pure functions of the number of records n. Callers must not change
// the results, which may be shared.
type Framer interface {
	Prologue(n uint64) []byte
	Epilogue(n uint64) []byte
}

// Presenter is implemented by formats whose streams hold a row for each record, computed from the
// record's bytes alone: all rows have the same size, whatever the records' sizes. It does not
// change which records are served, their order, or their IDs.
//
// Its methods are pure functions and safe for concurrent use.
type Presenter interface {
	// RowBytes returns the size of a row, above 0.
	RowBytes() int
	// Present writes the row of a record to dst, which has RowBytes, without allocating. If a
	// record can't be presented, the error contains the reason, and dst's contents are undefined.
	// Neither slice is retained.
	Present(dst, record []byte) error
	// RowType returns the row's dtype in NumPy's notation, and a remark on what that does not
	// express, "" for none.
	RowType() (descr, remark string)
}

// Renamer is implemented by formats to whose streams the rule for equal keys applies
// (pipeline/order/STREAMS.md). Rename appends to dst the record in the form that it has at position
// of a stream, directly after a record with an equal key. It appends len(record) bytes plus the
// growth that Index reported.
type Renamer interface {
	Rename(dst, record []byte, position uint64) ([]byte, error)
}

// Uniform is implemented by formats that require all shards of a dataset to be of one kind: npy of
// one dtype and row shape, lc0 of one version.
//
// A kind is a short, readable text of at most MaxKindBytes, stored in the index for each shard. A
// dataset's kind is that of its first shard with records. Shards of another kind are refused,
// whatever the value of --on-corrupt.
type Uniform interface {
	Format
	// IndexKind is Index, and also returns the kind of the shard's records. Each pass determines it
	// anew; with an error, it is the kind of the records emitted before. Records of two kinds in
	// one shard are a *RefusedError. The kind of a shard without records is ignored, and may be
	// empty.
	IndexKind(ctx context.Context, src Source, emit func(Extent) error) (kind string, err error)
	// SameKind reports whether shards of two kinds with different texts may be in one dataset. Both
	// come from IndexKind.
	SameKind(a, b string) bool
	// OfKind returns the format for streams of a dataset of that kind. The kind comes from
	// IndexKind, or, through the index, from IndexKind of an earlier run. A kind that this
	// version's IndexKind would not return is an error.
	OfKind(kind string) (Format, error)
}

// Mixer is implemented by Uniform formats that accept shards of different kinds, and whose streams
// are the same for all of them.
type Mixer interface {
	Uniform
	// MixedKind returns the kind of a dataset whose shards have these kinds, each listed once, in
	// dataset order. OfKind accepts it.
	MixedKind(kinds []string) string
}

// Differ is implemented by Uniform formats whose kinds are too long to be readable.
type Differ interface {
	// Differences describes how two kinds, the present and the former, differ; "" if it can't.
	Differences(is, was string) string
}

// MaxKindBytes bounds the text of a kind. It is the capacity of an npy header of version 1.0, with
// up to two bytes of UTF-8 for each of its bytes.
const MaxKindBytes = 128 << 10

// Codec decodes whole-shard compression. Values are immutable and safe for concurrent use.
type Codec interface {
	// Name returns "gzip", "zstd" or "lz4".
	Name() string
	// NewDecoder returns a decoder of raw bytes that begin at offset rawOffset of the shard, at the
	// first byte of a member.
	NewDecoder(raw io.Reader, rawOffset int64) (Decoder, error)
}

// Decoder decodes the members (gzip) or frames (zstd, lz4) of a shard one after another, with the
// same iteration as archive/tar. It is not safe for concurrent use.
type Decoder interface {
	// Next moves to the next member and returns the offset in the shard of its first raw byte, or
	// io.EOF if there is none. It skips the rest of the previous member (decoding it), skippable
	// frames, and whatever else the codec permits between members and after the last.
	Next() (rawOffset int64, err error)
	// Read reads the member's decoded bytes. It returns io.EOF at the member's end, after verifying
	// its checksum. Damage is a *CorruptError whose RawOffset is the first byte of the member. Its
	// OffsetBytes is meaningless, because a decoder does not know where it was opened (Decoded
	// does).
	Read(p []byte) (int, error)
	// MemoryBytes returns approximately how much memory the decoder holds.
	MemoryBytes() int64
	Close()
}

// Measured is implemented by decoders whose members take different amounts of memory, for example
// because of their windows.
type Measured interface {
	// MemberBytes returns approximately how much memory it takes to decode the current member
	// alone, whatever the decoder has decoded before.
	MemberBytes() int64
}

// CorruptError is damage in a shard: bytes that violate the format or the codec. Everything from
// OffsetBytes on is lost.
type CorruptError struct {
	// Record is the ordinal of the first record that the damage makes unreadable; -1 if it is
	// unknown.
	Record int64
	// OffsetBytes is the place in the decoded shard.
	OffsetBytes int64
	// RawOffset is the offset in the file of the damaged member's first byte; -1 for an
	// uncompressed shard.
	RawOffset int64
	// Part is the name of the damaged part of the shard, such as a game in a tar of games; "" if
	// the shard is not made of parts.
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

// PartReason returns the reason, prefixed by the part if there is one.
func (e *CorruptError) PartReason() string {
	return strings.TrimPrefix(e.Part+": "+e.Reason, ": ")
}

// Corrupt returns the error for damage that a format finds: at offsetBytes of the decoded shard,
// making record and all later ones unreadable.
func Corrupt(record, offsetBytes int64, format string, args ...any) *CorruptError {
	return &CorruptError{Record: record, OffsetBytes: offsetBytes, RawOffset: -1, Reason: fmt.Sprintf(format, args...)}
}

// RefusedError reports input that lsiofs does not read, whatever the value of --on-corrupt.
type RefusedError struct {
	OffsetBytes int64 // -1: it is not at one place
	Reason      string
	// Settings means that flags don't fit the shard: others would be accepted.
	Settings bool
}

func (e *RefusedError) Error() string {
	if e.OffsetBytes < 0 {
		return e.Reason
	}
	return fmt.Sprintf("offset %d: %s", e.OffsetBytes, e.Reason)
}

// Specification has the pages that define shards and records, of all formats. RECORDS.md is the
// first: "lsiofs help records" prints it.
//
//go:embed RECORDS.md SHARDS.md CODECS.md TAR.md FILES.md ARRAYS.md ROWS.md TOKENS.md GAMES.md CROPS.md ELEMENTS.md
var Specification embed.FS
