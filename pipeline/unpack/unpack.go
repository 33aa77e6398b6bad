// Package unpack is the contract between shards and records. It says what a format must
// offer (where records begin and end in a shard's decoded bytes), what a codec must
// offer, and what a stream has around its records. RECORDS.md is the specification.
//
//	file ──► Codec (gzip, zstd, …) ──► Source: decoded bytes ──► Format ──► Extents
//	                                                              └─► Kind, damage
//
// Formats see a Source: the decoded bytes of one shard, read forward once. The source of
// an uncompressed shard skips bytes that no format looks at; the source of a compressed
// one decodes.
//
// Each format and each codec is a package below this one. formats holds the table of
// them, frames the code that the codecs zstd and lz4 share, and unpacktest the suite
// that all of them pass.
package unpack

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Extent is one record as the index pass found it, in file order.
//
// [OffsetBytes, OffsetBytes+SizeBytes) are the record's bytes in the decoded shard.
// SizeBytes is its size in a stream before the equal-key rule. In one case the record
// ends one byte beyond the shard: a last line without a newline. That byte is then '\n'.
type Extent struct {
	OffsetBytes, SizeBytes int64
	// KeyHash is the xxh3 of the sample key, for formats that are Renamers. It is 0 for
	// a record without a key, which equals no other.
	KeyHash uint64
	// Growth[d-1] is the number of bytes by which the record grows under the equal-key
	// rule, if its position has d decimal digits. It is nil if the record never grows.
	// The slice is valid during the call only.
	Growth []int64
}

// MaxDigits is the greatest number of decimal digits of a position, and the length of
// Extent.Growth.
const MaxDigits = 20

// Source is a decoded shard, read forward once. It is not for concurrent use.
//
// Errors other than io.EOF are sticky. A source gives io.EOF only at the shard's true
// end. If its bytes can't be read or trusted, it gives another error (a *CorruptError if
// a codec found damage), which the format returns unchanged.
type Source interface {
	// Window returns the bytes that follow, without consuming them: at least min, and
	// more if more are at hand. Fewer than min come only with an error (io.EOF at the
	// shard's end). The slice is valid until the next call. min is at most
	// MaxWindowBytes: formats look at headers and separators through it, never at a
	// whole record.
	Window(min int) ([]byte, error)
	// Discard consumes n bytes, which need not be read. It fails with
	// io.ErrUnexpectedEOF if the shard ends earlier; OffsetBytes is then the decoded
	// shard's size.
	Discard(n int64) error
	// OffsetBytes is the offset in the decoded shard of the next byte.
	OffsetBytes() int64
}

// MaxWindowBytes bounds Source.Window. It holds the largest tar extension header that is
// accepted, and an npy header.
const MaxWindowBytes = 1 << 20

// Limits of a shard, whatever it claims; a larger one is refused. Within them sizes can
// be added without overflow, and a small file that decodes without end is stopped.
const (
	// MaxShardBytes bounds the size of a file: some file systems have sparse files of
	// nearly 2⁶³ bytes.
	MaxShardBytes = 1 << 56
	// MaxDecodedBytes bounds what a compressed shard may decode to.
	MaxDecodedBytes = 1 << 40
	// MaxMembers bounds the members or frames of a compressed shard. Each takes 16 bytes
	// of memory and of the index.
	MaxMembers = 1 << 26
)

// Format finds records. Values are immutable and safe for concurrent use.
type Format interface {
	// Name is the format's name on the command line.
	Name() string
	// Extensions are the file name extensions of the format's shards, with the dot and
	// without a codec's (".tar", not ".tar.gz").
	Extensions() []string
	// StreamExtension is the extension of a stream's name, with the dot. shard is the
	// path of the first shard without its codec's extension.
	StreamExtension(shard string) string
	// Sniff says whether a shard that begins with head is of this format. head has
	// min(decoded shard, SniffBytes) bytes.
	Sniff(head []byte) bool
	// Index calls emit for each record of src in file order, and returns nil at the
	// shard's end. It emits a record only after it has seen, intact, the bytes that show
	// the record's end. Damage is a *CorruptError. Something that is refused whatever
	// the policy is a *RefusedError. An error of emit or src is returned unchanged.
	Index(ctx context.Context, src Source, emit func(Extent) error) error
}

// Beginner is implemented by formats whose shards are refused for how they begin: what a
// file surely is not, although nothing in it is damaged.
type Beginner interface {
	// RefuseBegin returns why a shard that begins with head is refused, "" where it is not.
	// whole says that head is all of it; else it has SniffBytes.
	RefuseBegin(head []byte, whole bool) string
}

// Emptyable is implemented by formats of which a file of no bytes is a shard without
// records. Of all others it is damaged.
type Emptyable interface {
	Format
	// EmptyShards does nothing.
	EmptyShards()
}

// SniffBytes is how much of a shard Format.Sniff sees: enough for a tar header, and for
// a first line of JSON of up to about 64 KiB.
const SniffBytes = 64 << 10

// Verifier is implemented by formats whose records carry checksums that the index pass
// does not check. Verify gets a whole record as it is in the shard. Its error is a
// RecordDamage.
type Verifier interface {
	Verify(record []byte) error
	// NewCheck returns a Check that finds what Verify does.
	NewCheck() Check
}

// Check checks one record after the other, of which the bytes come in pieces. However large
// a record is, it holds a few bytes.
type Check interface {
	// Begin begins a record of sizeBytes.
	Begin(sizeBytes int64)
	// Add takes the next bytes of the record.
	Add(piece []byte)
	// End returns what is wrong with the record, of which all bytes have come: a RecordDamage.
	End() error
}

// RecordDamage is why a record is not what its own checksum says.
type RecordDamage string

func (d RecordDamage) Error() string { return string(d) }

// Unitary is implemented by formats that say what a split keeps together by default. If
// SplitByUnit returns true, that is the records from one entry point to the next (a
// game); else it is each record alone.
type Unitary interface {
	SplitByUnit() bool
}

// Headed is implemented by formats whose records lie at places that follow from a shard's
// header and its size: of an uncompressed shard, Index looks at the first bytes alone.
type Headed interface {
	// HeadBytes is how many bytes are read first. They hold the header of most shards.
	HeadBytes() int
}

// Foldered is implemented by formats whose shards are directories. A storage presents a
// directory as one shard: its files, one after the other, with FileFraming around each.
// Such formats are never detected, for a directory has no contents to look at.
type Foldered interface {
	Format
	FileFraming() FileFraming
}

// FileFraming is what a shard has around each file of its directory. It is pure, and
// safe for concurrent use.
type FileFraming interface {
	// HeaderBytes is the number of bytes that AppendHeader appends for a path of
	// pathBytes bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends what comes before a file's contents. path is relative to the
	// root, and valid during the call only.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes is the alignment of contents: they are filled up with zeros to a
	// multiple of it.
	AlignBytes() int64
}

// Framer is implemented by formats whose streams have bytes before or after the records.
// Both methods are pure functions of the number of records n. Callers must not change
// the results, which may be shared.
type Framer interface {
	Prologue(n uint64) []byte
	Epilogue(n uint64) []byte
}

// Presenter is implemented by formats whose streams hold a row for each record, made of the
// record's bytes alone: the same size for all, whatever the records' sizes. Which records
// come, in which order and under which IDs, is as without it.
//
// Its methods are pure functions and safe for concurrent use.
type Presenter interface {
	// RowBytes is the size of a row, above 0.
	RowBytes() int
	// Present writes the row of a record to dst, which has RowBytes, and allocates nothing.
	// A record that can't be presented is an error, which says why; dst's contents are
	// undefined then. Neither slice is kept.
	Present(dst, record []byte) error
	// RowType is the row's dtype as NumPy writes it, and what that does not tell, in words,
	// "" for nothing.
	RowType() (descr, remark string)
}

// Renamer is implemented by formats to whose streams the rule for equal keys applies
// (pipeline/order/STREAMS.md).
// Rename appends to dst the record in the form that it has at position of a stream,
// right behind a record with an equal key. It appends len(record) bytes plus the growth
// that Index reported.
type Renamer interface {
	Rename(dst, record []byte, position uint64) ([]byte, error)
}

// Uniform is implemented by formats that require all shards of a dataset to be of one
// kind: npy of one dtype and row shape, lc0 of one version.
//
// A kind is a short text of at most MaxKindBytes, stored in the index for each shard and
// shown to people. A dataset's kind is that of its first shard with records. Shards of
// another kind are refused, whatever --on-corrupt says.
type Uniform interface {
	Format
	// IndexKind is Index, and also returns the kind of the shard's records. Each pass
	// determines it anew; with an error, it is the kind of the records emitted before.
	// Records of two kinds in one shard are a *RefusedError. The kind of a shard without
	// records does not matter, and may be empty.
	IndexKind(ctx context.Context, src Source, emit func(Extent) error) (kind string, err error)
	// SameKind says whether shards of two kinds that are written differently may be in
	// one dataset. Both come from IndexKind.
	SameKind(a, b string) bool
	// OfKind is the format for streams of a dataset of that kind. The kind comes from
	// IndexKind, or through the index from IndexKind of an earlier run. A kind that this
	// version's IndexKind would not return is an error.
	OfKind(kind string) (Format, error)
}

// Mixer is implemented by Uniform formats that take shards of kinds that differ, and whose
// streams are the same for all of them.
type Mixer interface {
	Uniform
	// MixedKind is the kind of a dataset whose shards have these kinds, each there once, in
	// dataset order. OfKind takes it.
	MixedKind(kinds []string) string
}

// Differ is implemented by Uniform formats whose kinds are too long to be read by a person.
type Differ interface {
	// Differences says in words what differs of two kinds, as it is and as it was; "" where
	// it can't.
	Differences(is, was string) string
}

// MaxKindBytes bounds the text of a kind. It is what an npy header of version 1.0 can
// hold, with up to two bytes of UTF-8 for one of its bytes.
const MaxKindBytes = 128 << 10

// Codec decodes whole-shard compression. Values are immutable and safe for concurrent
// use.
type Codec interface {
	// Name is "gzip", "zstd" or "lz4".
	Name() string
	// Extensions maps each file name extension of the codec to the extension that
	// remains without it: ".gz" → "", ".tgz" → ".tar".
	Extensions() map[string]string
	// NewDecoder makes a decoder of raw bytes that begin at offset rawOffset of the
	// shard, at the first byte of a member.
	NewDecoder(raw io.Reader, rawOffset int64) (Decoder, error)
}

// Decoder decodes the members (gzip) or frames (zstd, lz4) of a shard one after the
// other, as archive/tar walks its entries. It is not for concurrent use.
type Decoder interface {
	// Next moves to the next member and returns the offset in the shard of its first raw
	// byte, or io.EOF if none follows. It skips the rest of the previous member
	// (decoding it), skippable frames, and whatever else the codec permits between
	// members and after the last.
	Next() (rawOffset int64, err error)
	// Read reads the member's decoded bytes. It gives io.EOF at the member's end, after
	// its checksum was found right. Damage is a *CorruptError whose RawOffset is the
	// first byte of the member. Its OffsetBytes is meaningless, for a decoder does not
	// know where it was opened (Decoded does).
	Read(p []byte) (int, error)
	// MemoryBytes is about how much memory the decoder holds.
	MemoryBytes() int64
	Close()
}

// Measured is implemented by decoders whose members take memory that differs, as windows do.
type Measured interface {
	// MemberBytes is about how much memory it takes to decode the current member alone, whatever the decoder
	// has decoded before.
	MemberBytes() int64
}

// CorruptError is damage in a shard: bytes that violate the format or the codec.
// Everything from OffsetBytes on is lost.
type CorruptError struct {
	// Record is the ordinal of the first record that the damage makes unreadable; -1 if
	// none can be named.
	Record int64
	// OffsetBytes is the place in the decoded shard.
	OffsetBytes int64
	// RawOffset is the offset in the file of the damaged member's first byte; -1 for an
	// uncompressed shard.
	RawOffset int64
	// Part names the damaged part of the shard, such as a game in a tar of games; "" if
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

// PartReason returns the reason, after the part if there is one.
func (e *CorruptError) PartReason() string {
	return strings.TrimPrefix(e.Part+": "+e.Reason, ": ")
}

// Corrupt makes the error for damage that a format finds: at offsetBytes of the decoded
// shard, making record and all later ones unreadable.
func Corrupt(record, offsetBytes int64, format string, args ...any) *CorruptError {
	return &CorruptError{Record: record, OffsetBytes: offsetBytes, RawOffset: -1, Reason: fmt.Sprintf(format, args...)}
}

// RefusedError is something that lsiofs does not read, whatever --on-corrupt says.
type RefusedError struct {
	OffsetBytes int64
	Reason      string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("offset %d: %s", e.OffsetBytes, e.Reason) }
