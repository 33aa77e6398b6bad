package remote

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"slices"
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

// ParseContentRange parses a Content-Range header: "bytes 0-9/100" is 0, 10, 100. end is exclusive.
// Missing parts are -1: "bytes 0-9/*" has no total, "bytes */100" no range. It is strict: ok is
// false, and all three are -1, for anything that RFC 9110 does not allow, and for ranges that are
// empty, extend beyond the total, or overflow.
func ParseContentRange(header string) (begin, end, total int64, ok bool) {
	unit, rest, spaced := strings.Cut(header, " ")
	span, length, found := strings.Cut(rest, "/")
	if !spaced || !found || !strings.EqualFold(unit, "bytes") {
		return -1, -1, -1, false
	}
	if total = number(length); total < 0 && length != "*" {
		return -1, -1, -1, false
	}
	if span == "*" {
		return -1, -1, total, total >= 0
	}
	first, last, _ := strings.Cut(span, "-")
	begin, end = number(first), number(last)
	if begin < 0 || end < begin || total >= 0 && end >= total {
		return -1, -1, -1, false
	}
	return begin, end + 1, total, true
}

// number parses decimal digits and nothing else; it returns -1 for anything else. It accepts at
// most 18 digits, more than any object's size has.
func number(digits string) int64 {
	if digits == "" || len(digits) > 18 || strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) {
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// maxRetryAfter is the longest that the engine waits because a service asks for it. Services
// announce hourly limits, but let requests through earlier.
const maxRetryAfter = 5 * time.Minute

// RetryAfter returns how long a service asks clients to wait, by its headers: Retry-After (seconds,
// or a date), or else the t of RateLimit (`"api";r=0;t=55`, or `limit=100, remaining=0, reset=55`)
// if nothing remains. It returns 0 if there is no such header, or the time has passed, and at most
// 5 minutes.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if value := strings.TrimSpace(h.Get("Retry-After")); value != "" {
		if n := number(value); n >= 0 {
			return seconds(n)
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(at.Sub(now), 0), maxRetryAfter)
		}
		return 0
	}
	return rateLimit(h.Get("RateLimit"))
}

// rateLimit returns the longest wait of limits that are used up. Limits are a list, each with its
// parameters after semicolons. In an older draft there is one limit, and the list is its
// parameters.
func rateLimit(value string) (wait time.Duration) {
	limits := []string{value}
	if strings.Contains(value, ";") {
		limits = strings.Split(value, ",")
	}
	for _, limit := range limits {
		left, reset := int64(-1), int64(-1)
		for _, item := range strings.FieldsFunc(limit, func(r rune) bool { return r == ';' || r == ',' }) {
			switch key, v, _ := strings.Cut(strings.TrimSpace(item), "="); key {
			case "r", "remaining":
				left = number(v)
			case "t", "reset":
				reset = number(v)
			}
		}
		if left == 0 && reset > 0 {
			wait = max(wait, seconds(reset))
		}
	}
	return wait
}

func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second
}

// Summer is a Source whose service may provide checksums of whole objects.
type Summer interface {
	// Sums describes an object as Head does, and returns the checksums in the same answer.
	Sums(ctx context.Context, path string) (Listed, Sums, error)
}

// Sum is a checksum of all bytes of an object.
type Sum struct {
	Algorithm string // a key of algorithms
	Value     []byte
	Where     string // the header that contained it
}

// Sums holds the checksums that a service has for an object's bytes.
type Sums struct {
	Sums []Sum
	// Why is why there is no checksum, or "" if there is one.
	Why string
}

// castagnoli and nvme are the tables of crc32c and of CRC-64/NVME. The polynomial of the latter is
// reversed, as hash/crc64 expects.
var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	nvme       = crc64.MakeTable(0x9a6c9329ac4bc9b5)
)

// algorithms are the algorithms that services use.
var algorithms = map[string]func() hash.Hash{
	"crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"crc32c":    func() hash.Hash { return crc32.New(castagnoli) },
	"crc64nvme": func() hash.Hash { return crc64.New(nvme) },
	"md5":       md5.New,
	"sha-1":     sha1.New,
	"sha-256":   sha256.New,
	"sha-512":   sha512.New,
}

// Differs reads the whole object, and returns the first checksum that does not match its bytes, or
// nil if all match.
func (s Sums) Differs(read func(io.Writer) error) (*Sum, error) {
	hashes := make([]hash.Hash, len(s.Sums))
	all := make([]io.Writer, len(s.Sums))
	for i, sum := range s.Sums {
		hashes[i] = algorithms[sum.Algorithm]()
		all[i] = hashes[i]
	}
	if err := read(io.MultiWriter(all...)); err != nil {
		return nil, err
	}
	for i := range hashes {
		if !bytes.Equal(hashes[i].Sum(nil), s.Sums[i].Value) {
			return &s.Sums[i], nil
		}
	}
	return nil, nil
}

// add adds a checksum in base64, unless its algorithm is unknown or its length is wrong.
func (s *Sums) add(algorithm, value, where string) {
	algorithm = strings.ToLower(strings.TrimSpace(algorithm))
	make, known := algorithms[algorithm]
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	if !known || err != nil || len(b) != make().Size() {
		return
	}
	s.Sums = append(s.Sums, Sum{algorithm, b, where})
}

// conclude sets the reason if there is no checksum.
func (s *Sums) conclude(why string) Sums {
	if len(s.Sums) == 0 {
		s.Why = why
	}
	return *s
}

const noSum = "the service tells no checksum of it"

// WebSums reads the checksums of an answer to HEAD: Repr-Digest (RFC 9530), Digest (RFC 3230),
// Content-MD5 (RFC 2616), and X-Goog-Hash of Google's storage.
func WebSums(h http.Header) Sums {
	var s Sums
	for _, member := range members(h, "Repr-Digest") {
		algorithm, value, _ := strings.Cut(member, "=")
		value, _, _ = strings.Cut(value, ";")
		value = strings.TrimSpace(value)
		if len(value) > 1 && value[0] == ':' && value[len(value)-1] == ':' {
			s.add(algorithm, value[1:len(value)-1], "Repr-Digest")
		}
	}
	for _, member := range members(h, "Digest") {
		algorithm, value, _ := strings.Cut(member, "=")
		if algorithm = strings.ToLower(algorithm); algorithm == "sha" {
			algorithm = "sha-1"
		}
		s.add(algorithm, value, "Digest")
	}
	s.add("md5", h.Get("Content-MD5"), "Content-MD5")
	// X-Goog-Hash is the hash of the stored bytes. The bytes that are sent differ if the object is
	// stored compressed.
	if stored := h.Get("X-Goog-Stored-Content-Encoding"); stored == "" || stored == "identity" {
		for _, member := range members(h, "X-Goog-Hash") {
			algorithm, value, _ := strings.Cut(member, "=")
			s.add(algorithm, value, "x-goog-hash")
		}
	}
	return s.conclude(noSum)
}

// members returns the elements of a header that is a list.
func members(h http.Header, name string) (list []string) {
	for _, line := range h.Values(name) {
		for member := range strings.SplitSeq(line, ",") {
			list = append(list, strings.TrimSpace(member))
		}
	}
	return list
}

// BucketSums reads the checksums of an S3 answer to HEAD: those requested by X-Amz-Checksum-Mode,
// and an ETag that is the MD5 of the bytes. An object that was uploaded in parts may have only a
// checksum of the parts' checksums.
func BucketSums(h http.Header) Sums {
	var s Sums
	why := noSum
	parts := strings.EqualFold(h.Get("X-Amz-Checksum-Type"), "COMPOSITE")
	for _, algorithm := range []string{"CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"} {
		name := "X-Amz-Checksum-" + algorithm
		value := h.Get(name)
		switch {
		case value == "":
		case parts || strings.Contains(value, "-"):
			why = "its checksum is of its parts' checksums"
		default:
			s.add(strings.Replace(algorithm, "SHA", "SHA-", 1), value, strings.ToLower(name))
		}
	}
	if len(s.Sums) > 0 {
		return s
	}
	etag := strings.Trim(h.Get("ETag"), `"`)
	md5, err := hex.DecodeString(etag)
	encrypted := h.Get("X-Amz-Server-Side-Encryption")
	switch {
	case strings.Contains(etag, "-"):
		why = "it was uploaded in parts, and its ETag is of these"
	case err != nil || len(md5) != 16:
	case encrypted != "" && encrypted != "AES256" || h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") != "":
		why = "it is stored encrypted, and its ETag is not of its bytes"
	default:
		s.Sums = append(s.Sums, Sum{"md5", slices.Clone(md5), "ETag"})
	}
	return s.conclude(why)
}
