package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// ofError returns the finding for a request that got no answer.
func ofError(err error) finding {
	f := finding{kind: kindAgain, err: err}
	switch {
	case err == nil:
	case refused(err):
		f.kind = kindFinal
	case isOtherScheme(err) != nil:
		f.kind, f.err = kindFinal, &Refusal{isOtherScheme(err)}
	case certificate(err) != "":
		f.kind, f.err = kindFinal, Refuse("%w: %s", err, certificate(err))
	}
	return f
}

// Explain returns an error of a Source as the engine reports it: without secrets, with advice if
// there is any, and as a *Refusal if retrying can't change it.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return ofError(Clean(err)).err
}

// refused reports whether retrying can't change an error of a Source.
func refused(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
}

// certificate returns advice about an error of a server's certificate, or "" for other errors.
func certificate(err error) string {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "write the name of the server that its certificate is for"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "have the server's certificate renewed, and look at this machine's clock"
	case errors.As(err, &authority):
		return "give the certificate of the server's authority with --ca-file"
	case errors.As(err, &verification) || errors.As(err, &invalid):
		return "have the server's certificate put right"
	}
	return ""
}

// isOtherScheme returns an error if a server does not use the protocol of the URL, or nil if it
// may. A server of plain HTTP answers the start of TLS with text, or closes the connection.
func isOtherScheme(err error) error {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		for _, b := range record.RecordHeader {
			if b >= 0x80 || b < ' ' && b != '\n' && b != '\r' && b != '\t' {
				return fmt.Errorf("%w: the server speaks something else than TLS there: look at the port", err)
			}
		}
		return errors.New("the server speaks plain HTTP there, and no TLS: write http:// in the place of https://")
	}
	// net/http has no error type for an answer that is not HTTP. TLS alerts begin with 0x15 0x03.
	if strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`) {
		return errors.New("the server speaks TLS there, and no plain HTTP: write https:// in the place of http://")
	}
	return nil
}
