package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// question is the request that an Answer is checked against: the range [begin, end) of one version
// of an object of size bytes.
type question struct {
	begin, end int64
	size       int64
	validator  Validator // "": versions are distinguished by size alone
	plain      bool      // requested without a range: [begin, end) is the whole object
	open       bool      // everything from begin to the end was requested
	whole      bool      // if a range is answered with 200, read through the body for the wanted part
}

// kind classifies an answer, or the lack of one, by what the read does next.
type kind int

const (
	kindGood      kind = iota // the body is, or contains, what was requested
	kindAgain                 // a failure that is likely to pass
	kindThrottled             // likewise, and the service is overloaded
	kindRefresh               // credentials, or a signed URL, must be renewed
	kindElsewhere             // the object is at another location: request that once
	kindWrong                 // not an answer to this question: another connection may give one
	kindNoRanges              // the whole object instead of a range
	kindFinal                 // retrying does not help
	kinds
)

// names are the names of kinds in Stats.Retries.
var names = [kinds]string{"", "failed", "throttled", "refreshed", "redirected", "wrong_answer", "no_range", ""}

// finding is the result of check for an answer.
type finding struct {
	kind       kind
	err        error         // the reason if it is not good
	skip, rest int64         // if good: bytes of the body before and after the requested ones
	retryAfter time.Duration // wait at least this long
	late       bool          // for kindRefresh: the renewal may be late
	doubtful   bool          // the object seems to have changed: see reconsider
	short      bool          // doubtful because an answer means that it is shorter
}

// check checks the head of an answer. It is pure. The body must have exactly skip + (end − begin) +
// rest bytes.
//
// A Content-Encoding may describe how the object is stored: upload tools set it for .gz files. Then
// length, range and version are the listed ones, and the body is the stored bytes. If a service
// encodes or decodes on the way, the length differs or is missing.
func check(a Answer, q question) finding {
	switch {
	case a.Status != 200 && a.Status != 206:
		return renewed(advised(ofStatus(a.Status, a.Code, a.RetryAfter), a.Status, a.Code, a.Advice), a.Code, a.Renewal)
	case a.Page != "":
		return wrong("%s", a.Page)
	case a.Encoding == "" || a.Encoding == "identity":
		return checkPlain(a, q)
	}
	f := checkPlain(a, q)
	if f.kind == kindGood && a.LengthBytes < 0 {
		f = wrong("the answer does not say how long it is")
	}
	if f.kind != kindGood {
		f.err = fmt.Errorf("%w: it is encoded (Content-Encoding %s), and lsiofs reads the bytes as they are stored", f.err, codeWord(a.Encoding))
	}
	return f
}

// checkPlain is check for answers without an encoding, or whose encoding is that of the stored
// object.
func checkPlain(a Answer, q question) finding {
	if a.Several {
		return wrong("the answer has no single range, but several (multipart/byteranges)")
	}
	switch {
	case q.validator == "" || a.Validator == q.validator:
	case a.Validator == "":
		return wrong("the answer does not say which version it is of (no ETag, no Last-Modified)")
	default:
		f := changed("another version is in its place")
		f.doubtful = true
		return f
	}
	if a.Status == 200 {
		return checkWhole(a, q)
	}
	switch {
	case a.Begin < 0 || a.End < 0:
		return wrong("the answer has no single range (Content-Range)")
	case a.Total >= 0 && a.Total != q.size:
		return changed("it has %d bytes, not %d", a.Total, q.size)
	case a.Begin != q.begin || a.End != q.end || a.Total < 0:
		return wrong("the answer is bytes [%d, %d) of %d, not [%d, %d) of %d", a.Begin, a.End, a.Total, q.begin, q.end, q.size)
	case a.LengthBytes >= 0 && a.LengthBytes != q.end-q.begin:
		return wrong("the answer has %d bytes, not %d", a.LengthBytes, q.end-q.begin)
	}
	return finding{}
}

// checkWhole is check for an answer that is the whole object.
func checkWhole(a Answer, q question) finding {
	switch {
	case !q.plain && !q.whole:
		return finding{kind: kindNoRanges, err: errNoRanges}
	case a.LengthBytes < 0 || a.LengthBytes == q.size:
		return finding{skip: q.begin, rest: q.size - q.end}
	case q.validator == "":
		return changed("it has %d bytes, not %d", a.LengthBytes, q.size)
	}
	return wrong("the answer has %d bytes, not %d", a.LengthBytes, q.size)
}

var errNoRanges = errors.New("the server does not serve ranges, it answers with all of the object: serve it from one that does, such as nginx or a bucket, or download it")

func wrong(format string, args ...any) finding {
	return finding{kind: kindWrong, err: fmt.Errorf(format, args...)}
}

func changed(format string, args ...any) finding {
	return finding{kind: kindFinal, err: fmt.Errorf(format+": %w", append(args, storage.ErrChanged)...)}
}

// advised returns the finding of ofStatus, with the source's advice if there is any.
func advised(f finding, status int, code, advice string) finding {
	if advice != "" {
		f.err = fmt.Errorf("the answer is %s: %s", statusText(status, code), advice)
	}
	return f
}

// renewed returns the finding of ofStatus, adjusted by whether the source may get other
// credentials. Keys that were valid and are now unknown have been replaced by others.
func renewed(f finding, code string, r Renewal) finding {
	switch code {
	case CodeExpired, "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidTokenId", "InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch":
		switch r {
		case NoRenewal:
			f.kind = kindFinal
		case LateRenewal:
			f.kind, f.late = kindRefresh, true
		}
	case "": // for example an answer to HEAD, which has no body
		if r == LateRenewal {
			f.late = f.kind == kindRefresh // a 401, as web servers send it
			f.kind = kindRefresh
		}
	}
	return f
}

// ofStatus returns the finding for an answer that is neither 200 nor 206.
func ofStatus(status int, code string, after time.Duration) finding {
	f := finding{kind: kindFinal, retryAfter: after}
	text := "the answer is " + statusText(status, code)
	switch code {
	case "SlowDown", "TooManyRequests", "RequestLimitExceeded", "ServiceUnavailable":
		f.kind = kindThrottled
	case "InternalError", "RequestTimeout":
		f.kind = kindAgain
	case CodeExpired, "ExpiredTokenException", "TokenRefreshRequired":
		f.kind, text = kindRefresh, text+": the credentials have expired: renew them"
	case "RequestTimeTooSkewed":
		f.kind, text = kindRefresh, text+": set this machine's clock right"
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		f.kind, text = kindElsewhere, text+": it lies in another region: name that with --region"
	case "InvalidBucketName":
		text += ": look at the name of the bucket"
	case "InvalidObjectState":
		text += ": the object is archived: restore it first"
	default:
		return ofPlainStatus(f, status, text)
	}
	f.err = errors.New(text)
	return f
}

// ProxyWantsSignIn is the advice if a proxy answers 407.
const ProxyWantsSignIn = "the proxy wants a name and a password: give them in HTTPS_PROXY or HTTP_PROXY, as http://USER:PASSWORD@HOST:PORT"

// ofPlainStatus is ofStatus for an answer without a known code.
func ofPlainStatus(f finding, status int, text string) finding {
	switch status {
	case 429, 503:
		f.kind = kindThrottled
	case 408, 500, 502, 504, 520, 521, 522, 523, 524: // 520 and above: proxies' codes for 502 and 504
		f.kind = kindAgain
	case 401:
		f.kind, text = kindRefresh, text+": the server wants a name and a password, or a token"
	case 301, 302, 303, 307, 308:
		f.kind, text = kindElsewhere, text+": it lies elsewhere: name its region with --region, or the URL that it is at"
	case 405, 501:
		text += ": no files are served there: look at the URL, and, for a bucket, at --endpoint"
	case 407:
		text += ": " + ProxyWantsSignIn
	case 403:
		text += ": the credentials may not read it: check them, and the permission to read objects"
	case 404, 410:
		return changed("%s: it is not there any more", text)
	case 412:
		f = changed("%s: another version is in its place", text)
		f.doubtful = true
		return f
	case 416:
		f = changed("%s: it has become shorter", text)
		f.doubtful, f.short = true, true
		return f
	}
	f.err = errors.New(text)
	return f
}

// StatusError is the error of List and Head if a service answers with something else than was
// requested. The engine retries if Status and Code suggest that this may help. It is fs.ErrNotExist
// if there is no such object.
type StatusError struct {
	Status     int
	Code       string        // the service's own code, "" if there is none
	RetryAfter time.Duration // as in Answer
	Advice     string        // as in Answer
	Renewal    Renewal       // as in Answer
}

func (e *StatusError) Error() string { return "the answer is " + statusText(e.Status, e.Code) }

// answer returns the Answer that corresponds to the error, for a source that could not be opened.
func (e *StatusError) answer() Answer {
	return Answer{
		Body: http.NoBody, Status: e.Status, Begin: -1, End: -1, Total: -1, LengthBytes: -1,
		Code: e.Code, RetryAfter: e.RetryAfter, Advice: e.Advice, Renewal: e.Renewal,
	}
}

// Is reports a missing object as fs.ErrNotExist.
func (e *StatusError) Is(target error) bool {
	return target == fs.ErrNotExist && (e.Status == http.StatusNotFound || e.Status == http.StatusGone)
}

// Refusal is wrapped by errors of a Source that retrying can't change: an object that can't be read
// the way it is served, or settings that must be changed. Its text states which.
type Refusal struct{ Err error }

func (e *Refusal) Error() string { return e.Err.Error() }
func (e *Refusal) Unwrap() error { return e.Err }

// Refuse returns a Refusal with a message formatted as by fmt.Errorf.
func Refuse(format string, args ...any) error {
	return &Refusal{Err: fmt.Errorf(format, args...)}
}
