package remote

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// modifiedKind is the prefix of validators that are modification times.
const modifiedKind = "modified:"

// ValidatorOf returns the best validator that an answer's header has: its ETag if that is strong,
// otherwise its Last-Modified, and "" if it has neither. Equal weak ETags mean that two versions
// are equivalent, not that their bytes are equal.
func ValidatorOf(h http.Header) Validator {
	if etag := strongTag(h.Get("ETag")); etag != "" {
		return Validator(etag)
	}
	return ModifiedValidator(modified(h))
}

// ModifiedValidator returns the validator of a version that is identified only by its modification
// time, in whole seconds; "" for the zero time.
func ModifiedValidator(t time.Time) Validator {
	if t.IsZero() {
		return ""
	}
	return Validator(modifiedKind + t.UTC().Format(http.TimeFormat))
}

// Modified reports whether v is a modification time, and returns it in HTTP's format.
func (v Validator) Modified() (date string, ok bool) {
	return strings.CutPrefix(string(v), modifiedKind)
}

// SetConditions makes a request fail with 412 if the object has another version than v. It sets
// nothing if v is "".
//
// The date that it sends is a second later: servers whose files have finer times compare those with
// it, and would otherwise always find them modified. A modification within that second, or at its
// end, shows in the answer's own date, as far as it shows at all.
func (v Validator) SetConditions(h http.Header) {
	if date, ok := v.Modified(); ok {
		if at, err := http.ParseTime(date); err == nil {
			date = at.Add(time.Second).UTC().Format(http.TimeFormat)
		}
		h.Set("If-Unmodified-Since", date)
	} else if v != "" {
		h.Set("If-Match", string(v))
	}
}

// SetRange requests n bytes from off on; n < 0 means everything from there on.
func SetRange(h http.Header, off, n int64) {
	switch {
	case n >= 0:
		h.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+n-1, 10))
	case off > 0:
		h.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-")
	}
}

// AnswerOf describes a service's HTTP response to a request for the version v. The answer's body is
// the response's. Its validator is of the same kind as v, so that the two can be compared, or "" if
// the response has none of this kind.
func AnswerOf(resp *http.Response, v Validator) Answer {
	a := Answer{
		Body: resp.Body, Status: resp.StatusCode, Begin: -1, End: -1, Total: -1,
		LengthBytes: resp.ContentLength, RetryAfter: RetryAfter(resp.Header, time.Now()),
	}
	a.Modified = modified(resp.Header)
	a.Validator = ValidatorOf(resp.Header)
	if _, dated := v.Modified(); dated {
		a.Validator = ModifiedValidator(a.Modified)
	} else if v != "" {
		a.Validator = Validator(strongTag(resp.Header.Get("ETag")))
	}
	a.Unsettled = Unsettled(resp.Header, a.Modified, a.Validator)
	// Several ranges come as several parts, each with its own Content-Range.
	a.Several = strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "multipart/byteranges")
	if ranges := resp.Header.Values("Content-Range"); len(ranges) == 1 && !a.Several {
		if begin, end, total, ok := ParseContentRange(ranges[0]); ok {
			a.Begin, a.End, a.Total = begin, end, total
		}
	}
	if encoding := strings.Join(resp.Header.Values("Content-Encoding"), ", "); !strings.EqualFold(encoding, "identity") {
		a.Encoding = encoding
	}
	return a
}

// maxErrorBytes bounds how much of an error's body is examined.
const maxErrorBytes = 64 << 10

// ReadCode sets Code to the code of a service's error, such as SlowDown. It is in the answer's
// header h (Azure), or in its body if that is XML (S3 and compatible services). The body can be
// read again from its start.
func (a *Answer) ReadCode(h http.Header) {
	if a.Status < 300 || a.Body == nil {
		return
	}
	if code := h.Get("x-ms-error-code"); codeWord(code) != "" {
		a.Code = code
		return
	}
	if !strings.Contains(h.Get("Content-Type"), "xml") {
		return
	}
	text, err := io.ReadAll(io.LimitReader(a.Body, maxErrorBytes))
	rest := io.Reader(a.Body)
	if err != nil {
		rest = failing{err}
	}
	a.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), a.Body}
	var said struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(text, &said) == nil && codeWord(said.Code) != "" {
		a.Code = said.Code
	}
}

// failing is a reader that always fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// strongTag returns an ETag that identifies bytes, or "".
func strongTag(etag string) string {
	if len(etag) < 2 || etag[0] != '"' || etag[len(etag)-1] != '"' || strings.ContainsAny(etag[1:len(etag)-1], "\"\r\n") {
		return ""
	}
	return etag
}

func modified(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
