package s3

import (
	"cmp"
	"net/http"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

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
