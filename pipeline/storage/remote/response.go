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

// modifiedKind begins validators that are times of modification.
const modifiedKind = "modified:"

// ValidatorOf is the best name of a version that an answer's header has: its ETag where
// that is strong, otherwise its Last-Modified, and "" where it has neither. A weak ETag
// says that two versions mean the same, not that they are the same bytes.
func ValidatorOf(h http.Header) Validator {
	if etag := strongTag(h.Get("ETag")); etag != "" {
		return Validator(etag)
	}
	return ModifiedValidator(modified(h))
}

// ModifiedValidator is that of a version which only its time of modification, in whole
// seconds, tells from others; "" for no time.
func ModifiedValidator(t time.Time) Validator {
	if t.IsZero() {
		return ""
	}
	return Validator(modifiedKind + t.UTC().Format(http.TimeFormat))
}

// Modified says whether v is a time of modification, and which, as HTTP writes it.
func (v Validator) Modified() (date string, ok bool) {
	return strings.CutPrefix(string(v), modifiedKind)
}

// SetConditions makes a request fail, by 412, where the object has another version
// than v. It sets nothing where v is "".
//
// A date is sent a second later than it is: servers whose files have finer times compare
// these to it, and would never find them unmodified. What was modified within the
// second, or at its end, shows in the answer's own date, as far as it shows at all.
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

// SetRange asks for n bytes from off on, with n < 0 for all from there on.
func SetRange(h http.Header, off, n int64) {
	switch {
	case n >= 0:
		h.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+n-1, 10))
	case off > 0:
		h.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-")
	}
}

// AnswerOf describes what a service answered over HTTP to a request for the version v.
// The answer's body is the response's. Its validator is of the kind that v is, so that
// the two can be compared: "" where the answer has none of this kind.
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
	// Several ranges are several parts, each with its own Content-Range.
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

// maxErrorBytes bounds how much of the body of an error is looked at.
const maxErrorBytes = 64 << 10

// ReadCode finds the code of a service's error, such as SlowDown: in the answer's header
// h, as Azure has it, or in its body, where that is XML as S3 and its kin have it. The
// body can be read again from its start.
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

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// strongTag is an ETag that names bytes, or "".
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
