package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

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
