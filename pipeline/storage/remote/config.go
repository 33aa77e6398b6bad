package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config is how an engine works. None of it changes a byte.
type Config struct {
	// Connections is how many requests may be under way at most.
	Connections int
	// InFlightBytes bounds what they ask for together; one alone may be larger.
	InFlightBytes int64
	// ReadTimeout is how long a read that somebody waits for is tried.
	ReadTimeout time.Duration
	// FirstByteTimeout is how long the first byte of an answer's body is waited for.
	FirstByteTimeout time.Duration
	// SlowBytes in SlowTime are the least that have to come from then on.
	SlowBytes int64
	SlowTime  time.Duration
	// Hedge has a second request made for what takes far longer than usual.
	Hedge bool
	// Unversioned accepts objects that the service names no versions of: what has
	// the same size is the same.
	Unversioned bool
	// GetDollars and ListDollars are the prices of one request.
	GetDollars, ListDollars float64
	// FirstContact is for how long a host that has never answered is tried to be reached.
	FirstContact time.Duration
	// Known is listed instead of what the service has, which can't be reached; nil asks it.
	Known *Known
	// Log is told once what a listing has left out, and what its versions are worth. It may be nil.
	Log *slog.Logger
	// Trouble is told, one at a time, when somebody has waited for a request for some seconds, now and
	// then while that lasts, and when it is over. It may be nil.
	Trouble func(Trouble)
	// Service is what is waited for, as Trouble has it; "" is the source's name.
	Service string
	// Before is what has to come before requests can be sent, such as credentials, in words; "" for
	// nothing. It may be nil.
	Before func() string
}

// DefaultConfig has 128 connections: at 25 ms of delay and 3 ms of transfer, 128 GETs
// of 256 KiB are 1.1 GB/s. The first byte comes within 200 ms from 95 % of S3's requests,
// and 90 MB/s after it; the bounds are far below that.
func DefaultConfig() Config {
	return Config{
		Connections: 128, InFlightBytes: 256 << 20, ReadTimeout: 5 * time.Minute,
		FirstContact: firstContact, FirstByteTimeout: 10 * time.Second, SlowBytes: 40 << 10, SlowTime: 10 * time.Second,
	}
}

// MaxConnections bounds Config.Connections: each takes a descriptor and some 100 KiB.
const MaxConnections = 1024

// Validate reports all problems at once.
func (c Config) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Connections < 1 || c.Connections > MaxConnections {
		problem("connections (%d) must be between 1 and %d", c.Connections, MaxConnections)
	}
	if c.InFlightBytes < 1 {
		problem("bytes in flight (%d) must be above 0", c.InFlightBytes)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"read timeout", c.ReadTimeout}, {"first contact", c.FirstContact}, {"first byte timeout", c.FirstByteTimeout}, {"slow time", c.SlowTime}} {
		if d.d <= 0 {
			problem("%s (%v) must be above 0", d.name, d.d)
		}
	}
	if c.SlowBytes < 0 {
		problem("slow bytes (%d) must be >= 0", c.SlowBytes)
	}
	if c.GetDollars < 0 || c.ListDollars < 0 {
		problem("prices (%v, %v) must be >= 0", c.GetDollars, c.ListDollars)
	}
	return errors.Join(errs...)
}
