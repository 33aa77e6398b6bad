package remote

import (
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// question is what an Answer is checked against: size bytes of an object in one
// version, or the range [begin, end) of them.
type question struct {
	begin, end int64
	size       int64
	validator  Validator // "": sizes alone tell versions apart
	plain      bool      // asked without a range: [begin, end) is all of it
	open       bool      // asked for all from begin on, however far that is
	whole      bool      // a 200 to a range is read through, for what was asked for
}

// kind is what an answer, or none, means for the read that it was for.
type kind int

const (
	kindGood      kind = iota // the body is, or holds, what was asked for
	kindAgain                 // what was the matter is likely to pass
	kindThrottled             // so is this, and the service has too much to do
	kindRefresh               // credentials, or a signed URL, are to be renewed
	kindElsewhere             // the object lies at another place: ask for that once
	kindWrong                 // the answer is to another question: another connection may do
	kindNoRanges              // all of the object instead of a range
	kindFinal                 // asking again does not help
	kinds
)

// names of kinds, in Stats.Retries.
var names = [kinds]string{"", "failed", "throttled", "refreshed", "redirected", "wrong_answer", "no_range", ""}

// finding is what check makes of an answer.
type finding struct {
	kind       kind
	err        error         // why, where it is not good
	skip, rest int64         // good: bytes of the body before and after those that were asked for
	retryAfter time.Duration // at least so long is to be waited
	late       bool          // kindRefresh: what renews it may be late
	doubtful   bool          // the object seems to have changed: see reconsider
	short      bool          // doubtful: by an answer that it is shorter
}

// check says whether an answer's head is right. It is pure. The body has to have
// exactly skip + (end − begin) + rest bytes.
//
// A Content-Encoding may be how the object is stored, as upload tools write it for .gz. Then
// length, range and version are those that were listed, and the bytes are those that are
// stored. What a service encodes or decodes on the way has another length, or none.
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

// checkPlain is check for what is encoded in no way, or is stored so.
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

// advised is what ofStatus says, with the advice of the source where that has one.
func advised(f finding, status int, code, advice string) finding {
	if advice != "" {
		f.err = fmt.Errorf("the answer is %s: %s", statusText(status, code), advice)
	}
	return f
}

// renewed is what ofStatus says, of credentials of which it is known whether others may come. Keys that
// were good and are not known any more have been replaced by others.
func renewed(f finding, code string, r Renewal) finding {
	switch code {
	case CodeExpired, "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidTokenId", "InvalidAccessKeyId", "InvalidClientTokenId", "SignatureDoesNotMatch":
		switch r {
		case NoRenewal:
			f.kind = kindFinal
		case LateRenewal:
			f.kind, f.late = kindRefresh, true
		}
	case "": // as of an answer to HEAD, which has no body
		if r == LateRenewal {
			f.late = f.kind == kindRefresh // of a 401, as of a web server
			f.kind = kindRefresh
		}
	}
	return f
}

// ofStatus says what an answer means that is neither 200 nor 206.
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

// ProxyWantsSignIn is what to do about a proxy that answers 407.
const ProxyWantsSignIn = "the proxy wants a name and a password: give them in HTTPS_PROXY or HTTP_PROXY, as http://USER:PASSWORD@HOST:PORT"

// ofPlainStatus is ofStatus where the code says nothing.
func ofPlainStatus(f finding, status int, text string) finding {
	switch status {
	case 429, 503:
		f.kind = kindThrottled
	case 408, 500, 502, 504, 520, 521, 522, 523, 524: // from 520 on: proxies' for 502 and 504
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
