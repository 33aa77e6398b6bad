package growing

import (
	"errors"
	"fmt"
	"strconv"
)

var (
	// ErrNotYet is wrapped by errors about an epoch that can't start yet, because there is too
	// little new data.
	ErrNotYet = errors.New("it is not available yet")
	// ErrNoEpoch is wrapped by errors about an epoch that does not exist: it comes after the next
	// one, or the run directory does not have it.
	ErrNoEpoch = errors.New("it does not exist")
)

// NotYetError means that the next epoch can't start yet. It wraps ErrNotYet.
type NotYetError struct {
	Epoch uint64
	// Have is how much is new, and Needed how much must be. If Needed.N is 0, the message leaves
	// both out.
	Have   uint64
	Needed Amount
	// Empty means that there are no records at all.
	Empty bool
}

func (e *NotYetError) Error() string {
	switch {
	case e.Empty:
		return fmt.Sprintf("epoch %d is not available yet: there are no records", e.Epoch)
	case e.Needed.N > 0:
		return fmt.Sprintf("epoch %d is not available yet: %s of %s new %s", e.Epoch, Grouped(e.Have), Grouped(e.Needed.N), e.Needed.Measure)
	}
	return fmt.Sprintf("epoch %d is not available yet", e.Epoch)
}

func (e *NotYetError) Unwrap() error { return ErrNotYet }

// NoEpochError means that an epoch does not exist. It wraps ErrNoEpoch.
type NoEpochError struct {
	Epoch uint64
	// At describes in words which epoch the run is at.
	At string
}

func (e *NoEpochError) Error() string {
	return fmt.Sprintf("epoch %d does not exist: %s", e.Epoch, e.At)
}

func (e *NoEpochError) Unwrap() error { return ErrNoEpoch }

// Grouped formats a number with a space between thousands.
func Grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
