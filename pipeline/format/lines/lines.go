// Package lines finds the lines of text files, for the formats jsonl and lines.
//
//	shard: [ef bb bf] line \n line \n … line [\n]
//
// A record is a line with its \n. A last line without \n is reported with a size that includes one.
// A UTF-8 byte order mark at the start belongs to no record. Lines of only spaces, tabs and
// carriage returns are not records. Lines are not checked to be JSON, except for the first one of
// jsonl (RefuseBegin). Lines may have any length: they are never held whole.
package lines

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

// Format is the format.Format of jsonl or lines; use JSONL or Lines to get one.
type Format struct {
	name     string
	fallback string // extension of streams if the shards have none
	json     bool   // Sniff and RefuseBegin expect JSON
}

var (
	_ format.Format    = Format{}
	_ format.Emptyable = Format{}
	_ format.Beginner  = Format{}
)

// JSONL returns the format with one JSON value per line.
func JSONL() Format {
	return Format{name: "jsonl", fallback: ".jsonl", json: true}
}

// Lines returns the format of arbitrary text.
func Lines() Format {
	return Format{name: "lines", fallback: ".txt"}
}

// Name returns "jsonl" or "lines".
func (f Format) Name() string { return f.name }

// StreamExtension returns the shard's own extension, or the format's first.
func (f Format) StreamExtension(shard string) string {
	if ext := path.Ext(shard); len(ext) > 1 {
		return ext
	}
	return f.fallback
}

var byteOrderMark = []byte{0xef, 0xbb, 0xbf}

// EmptyShards implements format.Emptyable.
func (Format) EmptyShards() {}

// Sniff reports whether the first line that is not blank is a JSON object. If the line is longer
// than head, it reports whether the line begins like one. Plain text can't be recognized by its
// bytes.
func (f Format) Sniff(head []byte) bool {
	if !f.json {
		return false
	}
	first, whole := firstLine(head, len(head) < format.SniffBytes)
	return len(first) > 0 && first[0] == '{' && isJSON(first, whole)
}

// RefuseBegin implements format.Beginner: jsonl is refused if its first line is not a JSON value.
func (f Format) RefuseBegin(head []byte, whole bool) string {
	if !f.json {
		return ""
	}
	first, ends := firstLine(head, whole)
	if len(first) == 0 || isJSON(first, ends) {
		return ""
	}
	switch {
	case len(bytes.Trim(head, "\x00")) == 0:
		return "the file begins with bytes of zero: copy or download it again"
	case bytes.IndexByte(first, 0) >= 0:
		return "the first line has bytes of zero, so it is not text: if it is UTF-16, iconv -f UTF-16LE -t UTF-8 FILE > NEW, with the ending of FILE, converts it"
	}
	const no = "the first line is not JSON: "
	if isJSON(first, false) && ends { // a document that spans many lines must not be cut into records
		if first[0] == '{' {
			return no + "if it is JSON objects over many lines, jq -c . FILE > NEW.jsonl writes one object a line"
		}
		return no + "if it is one JSON array over many lines, jq -c '.[]' FILE > NEW.jsonl writes one element a line"
	}
	return no + "if each line is a record anyway, use --format lines"
}

// Index implements format.Format.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	// An end or damage after fewer bytes is returned again: there may be a line in them.
	head, _ := src.Window(len(byteOrderMark))
	if bytes.HasPrefix(head, byteOrderMark) {
		if err := src.Discard(int64(len(byteOrderMark))); err != nil {
			return err
		}
	}
	s := scanner{start: src.OffsetBytes(), blank: true, emit: emit}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		window, err := src.Window(1)
		if err == io.EOF {
			return s.last(src.OffsetBytes())
		}
		if err != nil {
			return err
		}
		if err := s.scan(window, src.OffsetBytes()); err != nil {
			return err
		}
		if err := src.Discard(int64(len(window))); err != nil {
			return err
		}
	}
}

// scanner is the state of the line in which a window ends.
type scanner struct {
	start int64 // of the line
	blank bool  // only white space so far
	emit  func(format.Extent) error
}

// scan processes a window whose first byte is at offset at.
func (s *scanner) scan(window []byte, at int64) error {
	for pos := 0; ; {
		n := bytes.IndexByte(window[pos:], '\n')
		if n < 0 {
			s.blank = s.blank && isBlank(window[pos:])
			return nil
		}
		end := at + int64(pos+n) + 1
		if !s.blank || !isBlank(window[pos:pos+n]) {
			if err := s.emit(format.Extent{OffsetBytes: s.start, SizeBytes: end - s.start}); err != nil {
				return err
			}
		}
		s.start, s.blank = end, true
		pos += n + 1
	}
}

// last emits what follows the last \n of a shard that ends at end.
func (s *scanner) last(end int64) error {
	if s.blank {
		return nil
	}
	return s.emit(format.Extent{OffsetBytes: s.start, SizeBytes: end - s.start + 1})
}

func isBlank(p []byte) bool {
	for _, c := range p {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// firstLine returns the first line of head that is not blank, without the byte order mark before it
// and the white space around it. whole means that head is the whole shard; ends reports whether
// head contains the line's end.
func firstLine(head []byte, whole bool) (line []byte, ends bool) {
	rest := bytes.TrimPrefix(head, byteOrderMark)
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return bytes.Trim(rest, blanks), whole
		}
		if line := bytes.Trim(rest[:end], blanks); len(line) > 0 {
			return line, true
		}
		rest = rest[end+1:]
	}
}

const blanks = " \t\r"

// maxDepth bounds the nesting of a first line.
const maxDepth = 10_000

// isJSON reports whether a line is a JSON value, or, if its end is missing, can be continued to
// one. NaN and the infinities are accepted, because Python writes them.
func isJSON(line []byte, ends bool) bool {
	s := strictjson.New(line, maxDepth)
	err := s.Skip()
	if err == nil {
		err = s.End()
	}
	wrong, is := errors.AsType[*strictjson.SyntaxError](err)
	return err == nil || !ends && is && wrong.Cut
}
