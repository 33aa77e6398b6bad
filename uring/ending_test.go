package uring

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var errChanged = errors.New("changed")

func TestReadsFailOnlyIfVerificationOfTheirFileFails(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		for _, policy := range []Direct{DirectNever, DirectCold, DirectAlways} {
			if mode == ModeUring {
				requireUring(t)
			}
			e := openEngineAs(t, mode, string(mode))
			fd, _ := testFile(t, t.TempDir(), 300_000)
			var verified atomic.Int64
			changed, good, plain := NewFile(fd, policy), NewFile(fd, policy), NewFile(fd, policy)
			changed.VerifyWith(func() error { return errChanged })
			good.VerifyWith(func() error { verified.Add(1); return nil })
			for range 20 { // of the first requests of each file, and of many
				before := verified.Load()
				var requests []*Request
				for i := range 50 {
					for _, f := range []*File{changed, good, plain, changed} {
						requests = append(requests, &Request{File: f, OffsetBytes: int64(i) * 512, Buf: make([]byte, 700)})
					}
				}
				for i, got := range readAll(t, e, requests) {
					want := result{n: 700}
					if requests[i].File == changed {
						want.err = errChanged
					}
					require.Equal(t, want, got)
				}
				require.Greater(t, verified.Load(), before, "verified after each was submitted")
			}
			require.EqualValues(t, 2000, e.Status().Errors)
			require.EqualValues(t, 2000, e.Status().Reads)

			require.False(t, e.ReadNow(&Request{File: changed, Buf: make([]byte, 10), Done: notToBeCalled}))
			before := verified.Load()
			if e.ReadNow(&Request{File: good, Buf: make([]byte, 10), Done: notToBeCalled}) {
				require.Greater(t, verified.Load(), before)
			}
			for _, f := range []*File{changed, good, plain} {
				closeDirect(t, f)
			}
		}
	}
}

// TestOneVerificationServesReadsThatEndedBeforeIt checks the order that verification relies on: all
// reads of the list, then the verification, then their Dones.
func TestOneVerificationServesReadsThatEndedBeforeIt(t *testing.T) {
	var events []string
	file := func(name string) *File {
		f := NewFile(-1, DirectNever)
		f.VerifyWith(func() error { events = append(events, "look at "+name); return nil })
		return f
	}
	request := func(f *File, name string) *Request {
		return &Request{File: f, Done: func(int, error) { events = append(events, name) }}
	}
	a, b := file("a"), file("b")
	var e ending
	var c counters
	e.add(request(a, "a1"), 1, nil)
	e.add(request(a, "a2"), 1, nil)
	e.add(request(b, "b1"), 1, nil)
	e.add(request(nil, "plain"), 1, nil)
	e.add(request(b, "b2"), 5, errChanged)
	require.Equal(t, 9, e.bytes)
	require.Empty(t, events, "nothing is done before")
	e.complete(&c)
	require.Equal(t, []string{"look at a", "a1", "a2", "look at b", "b1", "plain", "b2"}, events)
	require.Zero(t, e.bytes)
	require.EqualValues(t, 1, c.errors.Load(), "a good verdict takes no error away")

	events = nil
	e.add(request(a, "a3"), 1, nil)
	e.complete(&c)
	require.Equal(t, []string{"look at a", "a3"}, events, "what ended later is looked at anew")
	e.complete(&c)
	require.Len(t, events, 2)
}
