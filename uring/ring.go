package uring

import (
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"golang.org/x/sys/unix"
)

// Flags of io_uring_setup(2) that the library has no options for.
const (
	setupClamp        = 1 << 4
	setupSubmitAll    = 1 << 7  // Linux 5.18
	setupSingleIssuer = 1 << 12 // Linux 6.0
	setupDeferTaskrun = 1 << 13 // Linux 6.1

	setupPreferred = setupSingleIssuer | setupDeferTaskrun | setupSubmitAll | setupClamp
)

// ring is a go-uring ring as far as that library can be used: it fills, submits and reaps entries.
// It belongs to one goroutine, which must be locked to its thread since before openRing.
type ring struct {
	*gouring.Ring
	flags uint32 // accepted by the kernel
}

// openRing makes a ring with the preferred flags, or with none if the kernel does not support them.
func openRing(entries uint32) (*ring, error) {
	r, err := newRing(entries, setupPreferred)
	if errors.Is(err, unix.EINVAL) {
		r, err = newRing(entries, setupClamp)
	}
	return r, err
}

func newRing(entries, flags uint32) (*ring, error) {
	r, err := gouring.New(entries, setupFlags(gouring.New, flags))
	if err == nil {
		return &ring{Ring: r, flags: flags}, nil
	}
	if r != nil {
		// The library has unmapped what it mapped but left the ring open.
		err = fmt.Errorf("map the ring: %w", err)
		_ = syscall.Close(r.Fd())
	}
	return nil, err
}

// setupFlags is a setup option that sets flags. The library's options are functions of an
// unexported type, which inference can name although we can't: P is its parameter struct, laid out
// like the kernel's, with the flags third.
func setupFlags[O ~func(*P), P, R any](_ func(uint32, ...O) (R, error), flags uint32) O {
	return func(p *P) { (*[3]uint32)(unsafe.Pointer(p))[2] |= flags }
}

// close frees everything. The library's Close leaves the array of submission entries mapped, which
// keeps the whole ring, its threads and its pinned memory.
func (r *ring) close() error {
	entries := r.submissionEntries()
	return errors.Join(r.Close(), syscall.Munmap(entries))
}

// submissionEntries is the mapping of the array of submission entries, which the library keeps in
// an unexported field.
func (r *ring) submissionEntries() []byte {
	return reflect.ValueOf(r.Ring).Elem().FieldByName("sqRing").Elem().FieldByName("sqeBuff").Bytes()
}
