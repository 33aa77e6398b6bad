package remote

import (
	"bytes"
	"encoding/xml"
	"io"
	"net/http"
	"net/textproto"
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
	a.Validator = ValidatorOf(resp.Header)
	if _, dated := v.Modified(); dated {
		a.Validator = ModifiedValidator(modified(resp.Header))
	} else if v != "" {
		a.Validator = Validator(strongTag(resp.Header.Get("ETag")))
	}
	// Several ranges are several parts, each with its own Content-Range.
	several := strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "multipart/byteranges")
	if ranges := resp.Header.Values("Content-Range"); len(ranges) == 1 && !several {
		if begin, end, total, ok := ParseContentRange(ranges[0]); ok {
			a.Begin, a.End, a.Total = begin, end, total
		}
	}
	if encoding := strings.Join(resp.Header.Values("Content-Encoding"), ", "); !strings.EqualFold(encoding, "identity") {
		a.Encoding = encoding
	}
	return a
}

// ParseContentRange reads the value of a Content-Range: bytes 0-4/9, 0-4/* or */9. end is
// exclusive; what is not said is -1. It is strict: ok is false for whatever RFC 9110
// does not have, and for ranges that are empty, reach beyond the total, or overflow.
func ParseContentRange(s string) (begin, end, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, size, found := strings.Cut(s, "/")
	if !ok || !found {
		return 0, 0, 0, false
	}
	total = -1
	if size != "*" {
		if total, ok = position(size); !ok {
			return 0, 0, 0, false
		}
	}
	if span == "*" {
		return -1, -1, total, total >= 0
	}
	first, last, found := strings.Cut(span, "-")
	begin, ok1 := position(first)
	end, ok2 := position(last)
	if !found || !ok1 || !ok2 || end < begin || total >= 0 && end >= total {
		return 0, 0, 0, false
	}
	return begin, end + 1, total, true
}

// position reads digits alone; at most 18, more than any object has bytes.
func position(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// maxRetryAfter bounds what a service may have its clients wait.
const maxRetryAfter = time.Hour

// RetryAfter is how long a service asks to be left alone: by Retry-After, in seconds or
// as a date, or by the t= of a RateLimit that has nothing left. 0 where it does not ask.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	said := textproto.TrimString(h.Get("Retry-After"))
	if seconds, ok := position(said); ok {
		wait = time.Duration(min(seconds, int64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(said); err == nil {
		wait = at.Sub(now)
	} else {
		wait = rateLimit(h.Get("RateLimit"))
	}
	return min(max(wait, 0), maxRetryAfter)
}

// rateLimit reads `"api";r=0;t=56`: r requests are left, new ones come in t seconds.
func rateLimit(s string) time.Duration {
	none, seconds := false, int64(0)
	for part := range strings.SplitSeq(s, ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, ok := position(value)
		switch {
		case key == "r" && ok:
			none = n == 0
		case key == "t" && ok:
			seconds = min(n, int64(maxRetryAfter/time.Second))
		}
	}
	if !none {
		return 0
	}
	return time.Duration(seconds) * time.Second
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
	if code := h.Get("x-ms-error-code"); code != "" && plainWord(code) {
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
	if xml.Unmarshal(text, &said) == nil && plainWord(said.Code) {
		a.Code = said.Code
	}
}

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// plainWord keeps out what is no code: codes are shown to people.
func plainWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(s) <= 64
}

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
	return t
}
