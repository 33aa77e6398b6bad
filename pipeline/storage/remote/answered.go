package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

// StatusError is what List and Head fail with when a service answers, and not with
// what it was asked for: the engine asks again where Status and Code say that this may
// help. It is fs.ErrNotExist where there is no such object.
type StatusError struct {
	Status     int
	Code       string        // the service's own word, "" where it has none
	RetryAfter time.Duration // as Answer's
	Advice     string        // as Answer's
	Renewal    Renewal       // as Answer's
}

func (e *StatusError) Error() string { return "the answer is " + statusText(e.Status, e.Code) }

// answer is what the error stands for, of a source that could not be opened.
func (e *StatusError) answer() Answer {
	return Answer{
		Body: http.NoBody, Status: e.Status, Begin: -1, End: -1, Total: -1, LengthBytes: -1,
		Code: e.Code, RetryAfter: e.RetryAfter, Advice: e.Advice, Renewal: e.Renewal,
	}
}

// Is makes an object that is not there fs.ErrNotExist.
func (e *StatusError) Is(target error) bool {
	return target == fs.ErrNotExist && (e.Status == http.StatusNotFound || e.Status == http.StatusGone)
}

// Refusal is wrapped by errors of a Source that no further try changes: an object that
// can't be read as it is served, or settings that have to be others. Its text says which.
type Refusal struct{ Err error }

func (e *Refusal) Error() string { return e.Err.Error() }
func (e *Refusal) Unwrap() error { return e.Err }

// Refuse makes a Refusal of a message as fmt.Errorf does.
func Refuse(format string, args ...any) error {
	return &Refusal{Err: fmt.Errorf(format, args...)}
}
