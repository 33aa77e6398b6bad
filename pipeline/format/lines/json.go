package lines

import (
	"bytes"
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

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
