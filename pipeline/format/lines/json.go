package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// isJSON reports whether a line is a JSON value, or, if its end is missing, can be continued to
// one. NaN and the infinities are accepted, because Python writes them.
func isJSON(line []byte, ends bool) bool {
	line = withNumbers(line, ends)
	if ends || json.Valid(line) {
		return json.Valid(line)
	}
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(line)).Decode(&value)
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}

// withNumbers returns a line with NaN and the infinities replaced by numbers. If the line's end is
// missing, it removes a last word that may be incomplete.
func withNumbers(line []byte, ends bool) []byte {
	if !ends {
		line = bytes.TrimRight(line, "+-.0123456789EINaefilnrstuy")
	}
	if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
		return line
	}
	out := make([]byte, 0, len(line))
	for inside := false; len(line) > 0; {
		switch {
		case inside && line[0] == '\\' && len(line) > 1:
			out, line = append(out, line[:2]...), line[2:]
			continue
		case line[0] == '"':
			inside = !inside
		case inside:
		case bytes.HasPrefix(line, []byte("NaN")):
			out, line = append(out, '0'), line[len("NaN"):]
			continue
		case bytes.HasPrefix(line, []byte("Infinity")): // a sign remains before the number
			out, line = append(out, '0'), line[len("Infinity"):]
			continue
		}
		out, line = append(out, line[0]), line[1:]
	}
	return out
}
