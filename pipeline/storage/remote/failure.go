package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// ofError says what it means that there was no answer. worked: the service has answered
// before, so its name exists.
func ofError(err error, worked bool) finding {
	f := finding{kind: kindAgain, err: err}
	var name *net.DNSError
	switch {
	case refused(err):
		f.kind = kindFinal
	case isCertificate(err):
		f.kind, f.err = kindFinal, fmt.Errorf("%w: give the server's authority with --ca-file, or have its certificate renewed", err)
	case errors.As(err, &name) && name.IsNotFound && !worked:
		f.kind, f.err = kindFinal, fmt.Errorf("%w: look at the host's name, and at DNS", err)
	}
	return f
}

// refused says whether an error of a Source is one that no further try changes.
func refused(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
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
