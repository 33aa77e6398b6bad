package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// aPage is the error if a web page is returned instead of something else.
const aPage = "a web page (text/html) came, and no %s: look at --endpoint, and at proxies and logins before the service"

const userAgent = "lsiofs"

// Options are the settings of a Source. Missing ones come from the environment and from the
// profile, as for Amazon's own programs.
type Options struct {
	Region        string
	Endpoint      string // a service other than Amazon, if the target names none: https://HOST
	Addressing    string // where requests name the bucket: path, virtual (in the host), or auto and ""
	Anonymous     bool   // requests are not signed
	RequesterPays bool
	// Credentials is shared by several sources; nil: the source has its own.
	Credentials *Credentials
	// Await makes Open fail with a temporary error while the profile file that may name the
	// bucket's region and service is not written yet.
	Await bool
	// Transport makes the requests. The caller owns it, and closes it after the source.
	Transport http.RoundTripper
}

// Source is a folder of a bucket.
type Source struct {
	options Options
	prefix  string // of keys: "" or ending in a slash
	keys    *keys
	own     *Credentials // nil: shared

	mu   sync.Mutex
	at   place
	said string // the region that the service named last, if it is another one
}

var (
	_ remote.Source = (*Source)(nil)
	_ remote.Summer = (*Source)(nil)
)

// Open returns the source for a target: for its folder, or, if the target is one object, for the
// folder that contains it, with its name there. It makes a request only if the target may be
// either.
func Open(ctx context.Context, t target.Bucket, o Options) (s *Source, object string, err error) {
	if o.Credentials == nil {
		if o.Credentials, err = NewCredentials(findTimeout); err != nil {
			return nil, "", err
		}
		own := o.Credentials
		defer func() {
			if err != nil {
				own.Close()
				return
			}
			s.own = own
		}()
	}
	folder, base := t.Split()
	if !t.Folder {
		if s, err = newSource(ctx, folder, o); err != nil {
			return nil, "", err
		}
		l, err := s.Head(ctx, base)
		if elsewhere(err) {
			s.Refresh(ctx, base)
			l, err = s.Head(ctx, base)
		}
		if err == nil && (l.SizeBytes > 0 || !s.holds(ctx, base+"/")) {
			return s, base, nil
		}
		if err == nil { // an empty object marks the folder, as some tools write it
			err = fs.ErrNotExist
		}
		_ = s.Close()
		if !perhapsFolder(err) {
			return nil, "", fmt.Errorf("%s: %w", s.nameOf(base), err)
		}
	}
	s, err = newSource(ctx, t, o)
	return s, "", err
}

// holds reports whether there are objects below a folder. It returns false if it can't be listed.
func (s *Source) holds(ctx context.Context, folder string) bool {
	p, err := s.page(ctx, s.prefix+folder, "", "", "")
	return err == nil && (p.next != "" || slices.ContainsFunc(p.Contents, func(o found) bool { return !strings.HasSuffix(o.Key, "/") }))
}

// perhapsFolder reports whether a target that could not be described as an object should be listed
// as a folder. Without the permission to list, missing objects are forbidden (403). The answer to a
// HEAD has no body, so it does not state what is wrong with a request (400), but the answer to a
// listing does.
func perhapsFolder(err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	status, ok := errors.AsType[*remote.StatusError](err)
	return ok && (status.Status == http.StatusForbidden || status.Status == http.StatusBadRequest)
}

// codeElsewhere is S3's code if a bucket is in another region.
const codeElsewhere = "PermanentRedirect"

func elsewhere(err error) bool {
	status, ok := errors.AsType[*remote.StatusError](err)
	return ok && status.Code == codeElsewhere
}

func newSource(ctx context.Context, folder target.Bucket, o Options) (*Source, error) {
	p, err := readProfile()
	if err != nil {
		return nil, err
	}
	keys := o.Credentials.of(p, o.Transport)
	if p.awaited && o.Await && !o.Anonymous { // the profile may also name the bucket's location
		_, err = keys.get(ctx)
		if _, coming := errors.AsType[*comingError](err); coming || err != nil && ctx.Err() != nil {
			return nil, err
		}
		if p, err = readProfile(); err != nil { // other errors with keys are reported by the first request
			return nil, err
		}
	}
	at, err := locate(folder, o, p)
	if err != nil {
		return nil, err
	}
	s := &Source{options: o, at: at, keys: keys}
	if folder.Key != "" {
		s.prefix = folder.Key + "/"
	}
	return s, nil
}

// Name returns s3://BUCKET/FOLDER for Amazon, s3+https://HOST/BUCKET/FOLDER for other services. It
// can be used as a target.
func (s *Source) Name() string { return s.where().name(s.prefix) }

// Close ends the source's own search for credentials. The transport belongs to the caller.
func (s *Source) Close() error {
	if s.own != nil {
		s.own.Close()
	}
	return nil
}

// Refresh makes the next request look for new credentials, and switches to the region that the
// service has named, unless the user has set one.
func (s *Source) Refresh(context.Context, string) {
	s.keys.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said != "" && !s.at.forced {
		s.at.region = s.said
	}
	s.said = ""
}

func (s *Source) where() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// placed returns where the bucket is. If no setting has its region, Amazon is asked once.
func (s *Source) placed(ctx context.Context) (place, error) {
	at := s.where()
	if at.region != "" {
		return at, nil
	}
	region, err := askRegion(ctx, s.options.Transport, at.bucket)
	if err != nil {
		return at, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at.region = region
	return s.at, nil
}

// nothing is the SHA-256 of an empty body.
const nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// ask makes one request, for an object or, if key is "", for the bucket.
func (s *Source) ask(ctx context.Context, method, key string, query url.Values, header http.Header) (*http.Response, error) {
	at, err := s.placed(ctx)
	if err != nil {
		return nil, err
	}
	u := at.url(key)
	u.RawQuery = query.Encode()
	header.Set("User-Agent", userAgent)
	header.Set("Accept-Encoding", "identity")
	if s.options.RequesterPays {
		header.Set("X-Amz-Request-Payer", "requester")
	}
	resp, err := s.send(ctx, at, method, u, header)
	if err != nil {
		return nil, err
	}
	if region := resp.Header.Get(regionHeader); region != "" && region != at.region && at.endpoint == nil {
		s.mu.Lock()
		s.said = region
		s.mu.Unlock()
	}
	tidy(resp.Header)
	return resp, nil
}

// tidy makes an answer's header like S3's, where services differ: ETags have quotes, and
// aws-chunked, which is how an object was uploaded, is removed, because it does not describe what
// is stored.
func tidy(h http.Header) {
	if etag := h.Get("ETag"); etag != "" {
		h.Set("ETag", quoted(etag))
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" {
		rest := strings.Trim(strings.ReplaceAll(encoding, "aws-chunked", ""), ", ")
		if rest == "" {
			h.Del("Content-Encoding")
		} else {
			h.Set("Content-Encoding", rest)
		}
	}
}

func quoted(etag string) string {
	if strings.ContainsAny(etag, "\"/") { // has quotes, or is weak
		return etag
	}
	return `"` + etag + `"`
}

// Head requests an object's size and version.
func (s *Source) Head(ctx context.Context, path string) (remote.Listed, error) {
	l, _, err := s.head(ctx, path, http.Header{})
	return l, err
}

// Sums implements remote.Summer.
func (s *Source) Sums(ctx context.Context, path string) (remote.Listed, remote.Sums, error) {
	l, answered, err := s.head(ctx, path, http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}})
	return l, remote.BucketSums(answered), err
}

func (s *Source) head(ctx context.Context, path string, header http.Header) (remote.Listed, http.Header, error) {
	key, err := s.key(path)
	if err != nil {
		return remote.Listed{}, nil, err
	}
	resp, err := s.ask(ctx, http.MethodHead, key, nil, header)
	if err != nil {
		return remote.Listed{}, nil, err
	}
	_ = resp.Body.Close()
	l, err := s.describe(path, resp)
	return l, resp.Header, err
}

// describe returns the object that an answer to HEAD describes.
func (s *Source) describe(path string, resp *http.Response) (remote.Listed, error) {
	a := remote.AnswerOf(resp, "")
	s.judge(&a, resp.Request)
	if a.Status != http.StatusOK {
		refused := failure(a)
		if at, region := s.where(), resp.Header.Get(regionHeader); at.endpoint == nil && region != "" && region != at.region && (a.Status/100 == 3 || a.Status == http.StatusBadRequest) {
			refused.Code = codeElsewhere // an answer to HEAD has no body with a code
		}
		return remote.Listed{}, refused
	}
	l := remote.Listed{Path: path, SizeBytes: a.LengthBytes, Validator: a.Validator, Modified: a.Modified, Unsettled: a.Unsettled}
	restored := strings.Contains(resp.Header.Get("X-Amz-Restore"), `ongoing-request="false"`)
	l.Archived = (archived(resp.Header.Get("X-Amz-Storage-Class")) || resp.Header.Get("X-Amz-Archive-Status") != "") && !restored
	switch {
	case l.Validator == "" && remote.IsPage(resp.Header):
		return l, remote.Refuse(aPage, "object")
	case a.Encoding != "" && l.SizeBytes < 0:
		return l, remote.Refuse("the service encodes it on the way (Content-Encoding %q), though asked for the bytes as they are", a.Encoding)
	case l.SizeBytes < 0:
		return l, remote.Refuse("the service does not say how large it is")
	case l.Validator == "":
		return l, remote.Refuse("the service says neither ETag nor Last-Modified, so that a change could not be seen")
	}
	return l, nil
}

// Open requests a range by GET, with If-Match.
func (s *Source) Open(ctx context.Context, path string, v remote.Validator, off, n int64) (remote.Answer, error) {
	if off < 0 || n == 0 {
		return remote.Answer{}, remote.Refuse("there is no range of %d bytes at %d", n, off)
	}
	key, err := s.key(path)
	if err != nil {
		return remote.Answer{}, err
	}
	header := http.Header{}
	remote.SetRange(header, off, n)
	v.SetConditions(header)
	resp, err := s.ask(ctx, http.MethodGet, key, nil, header)
	if err != nil {
		return remote.Answer{}, err
	}
	a := remote.AnswerOf(resp, v)
	a.ReadCode(resp.Header)
	s.judge(&a, resp.Request)
	if remote.IsPage(resp.Header) && (a.Validator == "" || a.Validator != v) { // an object may be stored with that type
		a.Page = fmt.Sprintf(aPage, "object")
	}
	return a, nil
}

// key returns the bucket's key for a path.
func (s *Source) key(path string) (string, error) {
	key := s.prefix + path
	if !utf8.ValidString(key) {
		return "", remote.Refuse("keys are UTF-8, and this one is not")
	}
	return key, nil
}

func (s *Source) nameOf(path string) string { return s.Name() + "/" + path }

func escape(path string) string { return target.Escape(path) }

// Identity describes where the credentials come from that requests are signed with. It does not
// contain them.
type Identity struct {
	From    string    // description; "" if requests are not signed
	Expires time.Time // zero: never, or unknown
}

// Identity describes the credentials that requests are signed with. The error lists each place that
// was tried.
func (s *Source) Identity(ctx context.Context) (Identity, error) {
	if s.options.Anonymous {
		return Identity{}, nil
	}
	value, err := s.keys.get(ctx)
	if err != nil {
		return Identity{}, err
	}
	return Identity{From: s.keys.from().name, Expires: value.Expiration}, nil
}

// Region returns the region that requests are signed for; "" before the first request if no setting
// has it.
func (s *Source) Region() string { return s.where().region }

// judge sets what an answer means for the credentials of its request. Credentials that the service
// has accepted are marked as such. asked is the request, which a redirect may have led to another
// host.
func (s *Source) judge(a *remote.Answer, asked *http.Request) {
	switch a.Status {
	case http.StatusOK, http.StatusPartialContent:
		if !s.keys.accepted.Load() {
			s.keys.accepted.Store(true)
		}
		return
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
	default:
		return
	}
	at := s.where()
	style := ""
	if at.endpoint != nil && !at.inHost && !s.keys.accepted.Load() {
		style = "; if the service takes buckets in its host's name only, give --addressing virtual"
	}
	switch {
	case a.Code == "SecondLevelDomainForbidden", a.Code == "PathStyleDomainForbidden", a.Code == "InvalidPathAccess": // of Alibaba, Tencent, Volcano
		a.Advice = "the service takes buckets in its host's name only: give --addressing virtual"
		return
	case s.options.Anonymous:
		if a.Status != http.StatusBadRequest {
			a.Advice = "it may not be read without credentials: leave --anonymous out, and give some" + style
		}
		return
	case asked.Header.Get("Authorization") != "":
	case isSigned(asked.URL):
		a.Code, a.Advice = remote.CodeExpired, "it is of "+asked.URL.Host+", which the service redirects to with a signature of its own"
		return
	default:
		a.Advice = "it is of " + asked.URL.Host + ", which the service redirects to, and which is sent no signature of yours: if it is yours, name it with --endpoint"
		return
	}
	from := s.keys.from()
	if from == nil {
		return
	}
	switch {
	case from.every == 0:
		a.Renewal = remote.NoRenewal
	case s.keys.accepted.Load():
		a.Renewal = remote.LateRenewal
	}
	if at.endpoint == nil && !s.options.RequesterPays {
		style = "; where whoever asks pays for requests, give --requester-pays"
	}
	if a.Advice = advise(a.Code, from, a.Status); a.Advice != "" && (a.Code == "AccessDenied" || a.Code == "") {
		a.Advice += style
	}
	if a.Status == http.StatusBadRequest && a.Code == "" && at.endpoint != nil && at.endpoint.Scheme == "http" {
		a.Advice = "if the service speaks TLS at that port, write https:// in its endpoint"
	}
}

// advise returns advice about a rejected request, or "".
func advise(code string, from *origin, status int) string {
	place := "credentials of " + from.name
	switch code {
	case "SignatureDoesNotMatch":
		return "the service knows the key id, and the secret does not fit it: look at " + cmp.Or(from.setting.secret, "the secret key") + " (" + place + ")"
	case "InvalidAccessKeyId", "InvalidClientTokenId", "UnrecognizedClientException":
		return "the service does not know the key id: look at " + cmp.Or(from.setting.id, "the keys") + " (" + place + "), and at --endpoint where they are of another service"
	case "InvalidToken", "InvalidTokenId", "InvalidSecurity":
		return "the session token is not one of these keys: look at " + cmp.Or(from.setting.token, "the token") + " (" + place + "); keys that need none are sent without"
	case remote.CodeExpired, "ExpiredTokenException", "TokenRefreshRequired":
		if from.every == 0 {
			return "the " + place + " have expired, and can't change while this program runs: set new ones and start it again"
		}
		return "the " + place + " have expired: renew them"
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "":
		if status == http.StatusBadRequest {
			return ""
		}
		return "the " + place + " may not read it: they need the permission to list the bucket and to read its objects"
	}
	return ""
}

// failure returns the error for an answer that is not the requested one.
func failure(a remote.Answer) *remote.StatusError {
	return &remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter, Advice: a.Advice, Renewal: a.Renewal}
}
