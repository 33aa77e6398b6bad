package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"strings"
)

// Foreign describes a shard that begins like a file of another kind.
type Foreign struct {
	// What completes the sentence "the file is …": "compressed with xz".
	What string
	// Next is the advice, as a command if there is one.
	Next string
}

// signature is how the files of a kind begin that is not a format recognized by its bytes.
type signature struct {
	text string
	is   Foreign
	fold bool // ignore case

	// codec is the codec that decodes such files; "" for none.
	codec string
	// leastBytes of text tell that codec; 0 means all of them.
	leastBytes int
	// framed means that skippable frames may come first.
	framed bool
}

const (
	convert  = "convert it to .jsonl, .tar or .npy (lsiofs help formats)"
	download = "look at it, and download the file again"
	recode16 = "iconv -f UTF-16 -t UTF-8 FILE > NEW, with the ending of FILE, converts it"
	recode32 = "iconv -f UTF-32 -t UTF-8 FILE > NEW, with the ending of FILE, converts it"
	unlz4    = "lz4 -dc FILE > NEW decompresses it"
)

// signatures are in the order in which they are compared: UTF-32 begins like UTF-16.
var signatures = [...]signature{
	{text: "\x1f\x8b\x08", codec: "gzip", leastBytes: 2, is: Foreign{"compressed with gzip", "gunzip -c FILE > NEW decompresses it"}},
	{text: "\x28\xb5\x2f\xfd", codec: "zstd", framed: true, is: Foreign{"compressed with zstd", "zstd -dc FILE > NEW decompresses it"}},
	{text: "\x04\x22\x4d\x18", codec: "lz4", framed: true, is: Foreign{"compressed with lz4", unlz4}},
	{text: "\x02\x21\x4c\x18", codec: "lz4", framed: true, is: Foreign{"compressed with lz4, in its legacy format", unlz4}},
	{text: "\xfd7zXZ\x00", is: Foreign{"compressed with xz, which lsiofs does not read", "xz -dc FILE | zstd > NEW recompresses it; name the new file with .zst in place of .xz"}},
	{text: "BZh", is: Foreign{"compressed with bzip2, which lsiofs does not read", "bzip2 -dc FILE | zstd > NEW recompresses it; name the new file with .zst in place of .bz2"}},
	{text: "PK\x03\x04", is: Foreign{"a zip archive", "unzip it, and name what it holds"}},
	{text: "PK\x05\x06", is: Foreign{"an empty zip archive", download}},
	{text: "7z\xbc\xaf\x27\x1c", is: Foreign{"a 7z archive", "unpack it with 7z x FILE, and name what it holds"}},
	{text: "PAR1", is: Foreign{"Parquet", "name the files with .parquet, or use --format parquet"}},
	{text: "ARROW1\x00\x00", is: Foreign{"Arrow", convert}},
	{text: "\x89HDF\r\n\x1a\n", is: Foreign{"HDF5", convert}},
	{text: "\xff\xfe\x00\x00", is: Foreign{"text in UTF-32", recode32}},
	{text: "\x00\x00\xfe\xff", is: Foreign{"text in UTF-32", recode32}},
	{text: "\xff\xfe", is: Foreign{"text in UTF-16", recode16}},
	{text: "\xfe\xff", is: Foreign{"text in UTF-16", recode16}},
	{text: "version https://git-lfs", is: Foreign{"a Git LFS pointer", "git lfs pull fetches the file itself"}},
	{text: "<!doctype html", fold: true, is: Foreign{"an HTML page, such as servers send for errors and logins", download}},
	{text: "<html", fold: true, is: Foreign{"an HTML page, such as servers send for errors and logins", download}},
}

// foreignBytes is how many bytes of a shard IsForeign inspects.
const foreignBytes = 512

// IsForeign returns what a shard is if its decoded bytes, which begin with head, are those of a
// file of another kind. It is for formats recognized by their bytes: shards of other formats can
// begin with any bytes.
func IsForeign(head []byte) (Foreign, bool) {
	for i := range signatures {
		if signatures[i].begins(head) {
			return signatures[i].is, true
		}
	}
	return Foreign{}, false
}

func (m *signature) begins(head []byte) bool {
	n := len(m.text)
	switch {
	case m.fold:
		head = bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
		return len(head) >= n && bytes.EqualFold(head[:n], []byte(m.text))
	case !bytes.HasPrefix(head, []byte(m.text)):
		return false
	case m.text != "BZh":
		return true
	}
	// A text may begin like this, too: in a bzip2 file a digit and the first block, or the end,
	// must follow.
	if len(head) < 10 || head[3] < '1' || head[3] > '9' {
		return false
	}
	block := string(head[4:10])
	return block == "1AY&SY" || block == "\x17\x72\x45\x38\x50\x90"
}

var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// ToldByBytes reports whether shards of a format can be distinguished from other files by their
// first bytes. Shards of the others, which are Opaque, can begin with any bytes.
func ToldByBytes(f Format) bool {
	_, opaque := f.(Opaque)
	return !opaque
}

// refuseForeign refuses a shard that begins like a file of another kind. It ignores errors of src:
// src returns them again, to the format.
func refuseForeign(f Format, c Codec, src Source) error {
	if !ToldByBytes(f) {
		return nil
	}
	want := foreignBytes
	begins, checks := f.(Beginner)
	if checks {
		want = SniffBytes
	}
	head, err := src.Window(want)
	if err != nil && err != io.EOF || len(head) == 0 {
		return nil
	}
	if len(head) > SniffBytes {
		head, err = head[:SniffBytes], nil
	}
	if f.Sniff(head) {
		return nil // the length of a TFRecord may look like anything
	}
	if is, foreign := IsForeign(head); foreign {
		what := "the file is " + is.What
		if c != nil {
			what = "inside its " + c.Name() + " " + what
		}
		return &RefusedError{Reason: what + ": " + is.Next}
	}
	if checks {
		if reason := begins.RefuseBegin(head, err == io.EOF); reason != "" {
			return &RefusedError{Reason: reason}
		}
	}
	return nil
}

const (
	skippableMagic = 0x184d2a50 // to …5f, used by zstd and lz4
	skippableBytes = 8          // of its header: magic, size
	// leastSignatureBytes is what a file must have to be judged by its first bytes alone.
	leastSignatureBytes = 4
)

// CodecName returns the name of the codec whose frame or member a file begins with; "" for none.
// named is the codec that the file's name implies, "" for none. It decides if the file ends within
// the first bytes of that codec, or if head has nothing but skippable frames, which zstd and lz4
// have in common; without a name, these are zstd's.
func CodecName(head []byte, named string) string {
	if len(head) < leastSignatureBytes && named != "" && beginsAs(named, head) {
		return named
	}
	for first := true; ; first = false {
		for i := range signatures {
			if s := &signatures[i]; s.codec != "" && (first || s.framed) && bytes.HasPrefix(head, []byte(s.text[:cmp.Or(s.leastBytes, len(s.text))])) {
				return s.codec
			}
		}
		if len(head) < leastSignatureBytes || binary.LittleEndian.Uint32(head)&^0xf != skippableMagic {
			if first {
				return ""
			}
			break
		}
		if len(head) < skippableBytes {
			break
		}
		size := skippableBytes + int64(binary.LittleEndian.Uint32(head[4:]))
		if size >= int64(len(head)) {
			break
		}
		head = head[size:]
	}
	return cmp.Or(named, "zstd")
}

// beginsAs reports whether these few bytes can be the first ones of a codec's file.
func beginsAs(codec string, head []byte) bool {
	for i := range signatures {
		if s := &signatures[i]; s.codec == codec && strings.HasPrefix(s.text, string(head)) {
			return true
		}
	}
	return false
}
