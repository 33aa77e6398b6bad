package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// ofError says what it means that there was no answer. worked: the service has answered
// before, so its name exists.
func ofError(err error, worked bool) finding {
	f := finding{kind: kindAgain, err: err}
	var name *net.DNSError
	switch {
	case errors.Is(err, ErrFinal):
		f.kind = kindFinal
	case isCertificate(err):
		f.kind, f.err = kindFinal, fmt.Errorf("%w: give the server's authority with --ca-file, or have its certificate renewed", err)
	case errors.As(err, &name) && name.IsNotFound && !worked:
		f.kind, f.err = kindFinal, fmt.Errorf("%w: look at the host's name, and at DNS", err)
	}
	return f
}

func isCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid)
}

// cleanError is an error whose text names no user, query or signature. What it is of is
// still told by errors.Is and errors.As, but not printed.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string        { return e.text }
func (e *cleanError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *cleanError) As(target any) bool   { return errors.As(e.err, target) }

// cleaned gives an error that may be printed. Errors of net/http repeat the URL of a
// request, in which signatures and passwords stand.
func cleaned(err error) error {
	if err == nil {
		return nil
	}
	shown := err
	for {
		of, ok := errors.AsType[*url.Error](shown)
		if !ok || of.Err == nil {
			break
		}
		shown = of.Err
	}
	return &cleanError{text: withoutSecrets(shown.Error()), err: err}
}

// withoutSecrets takes users and queries out of the URLs in a text.
func withoutSecrets(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		end := strings.IndexAny(text, " \t\r\n\"'<>")
		if end < 0 {
			end = len(text)
		}
		out.WriteString(cleanWord(text[:end]))
		if end < len(text) {
			end++
			out.WriteByte(text[end-1])
		}
		text = text[end:]
	}
	return out.String()
}

func cleanWord(word string) string {
	if cut := strings.IndexAny(word, "?#"); cut >= 0 && cut < len(word)-1 {
		colon := ""
		if word[len(word)-1] == ':' {
			colon = ":"
		}
		word = word[:cut] + colon
	}
	scheme, rest, found := strings.Cut(word, "://")
	if !found {
		return word
	}
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if slash {
		path = "/" + path
	}
	return scheme + "://" + authority + path
}
