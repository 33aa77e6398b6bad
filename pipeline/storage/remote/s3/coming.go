package s3

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// comingError is the error of a search that found nothing, although a place may have credentials
// later: a metadata service that is not up yet, or a file that another program is about to write.
type comingError struct {
	err  error
	from *origin
}

func (e *comingError) Error() string { return e.err.Error() }
func (e *comingError) Unwrap() error { return e.err }

// comingFrom returns the error of a search. from is the place that may have credentials later, or
// nil.
func comingFrom(from *origin, err error) error {
	if from == nil {
		return err
	}
	return &comingError{err, from}
}

// errUnwritten is wrapped if a file that the configuration names is missing or empty.
var errUnwritten = errors.New("not there yet, or empty")

// written reports whether a file has contents, or is not a regular file.
func written(path string) bool {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	return err != nil || !info.Mode().IsRegular() || info.Size() > 0
}

// mayPass reports whether a failure at a place may be different at the next look, without a change
// to how the place is set up.
func (o *origin) mayPass(err error) bool {
	if _, final := errors.AsType[*remote.Refusal](remote.Explain(err)); final {
		return false
	}
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		code := ended.ExitCode()
		return code != shellCannotRun && code != shellNotFound
	}
	if errors.Is(err, errUnwritten) {
		return true
	}
	_, unanswered := errors.AsType[*unansweredError](err)
	return unanswered
}

// Exit codes of a shell that can't run a program, or does not find it.
const (
	shellCannotRun = 126
	shellNotFound  = 127
)

// answers makes requests for credentials. It turns answers that mean that a service is temporarily
// unavailable into errors, because the providers' library returns only their text.
type answers struct{ below http.RoundTripper }

// unansweredError is the error of a request for credentials that may be answered if it is repeated.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.below.RoundTrip(r)
	switch {
	case err != nil:
		return nil, &unansweredError{err}
	case resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout:
		_ = resp.Body.Close()
		return nil, &unansweredError{fmt.Errorf("it answers %s", resp.Status)}
	}
	return resp, nil
}

// onAmazonsMachine reports whether the machine has an Amazon metadata service, which may not be up
// yet: the environment has its address, or the firmware identifies an Amazon machine.
func onAmazonsMachine() bool {
	if variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") != "" {
		return true
	}
	for file, begin := range map[string]string{"/sys/class/dmi/id/sys_vendor": "amazon ec2", "/sys/hypervisor/uuid": "ec2"} {
		text, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(strings.ToLower(string(text)), begin) {
			return true
		}
	}
	return false
}

// pause returns how long to wait after the given number of failed looks in a row, at a place that
// may have credentials later.
func (o *origin) pause(looks int) time.Duration {
	return min(o.every, time.Second<<min(max(looks-1, 0), 16))
}
