package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config configures an engine. None of its settings changes which bytes are read.
type Config struct {
	// Connections is the most requests that may be running at a time.
	Connections int
	// InFlightBytes bounds the total size of running requests; a single request may be larger.
	InFlightBytes int64
	// ReadTimeout is how long a read that a reader waits for is retried.
	ReadTimeout time.Duration
	// FirstByteTimeout is how long to wait for the first byte of an answer's body.
	FirstByteTimeout time.Duration
	// At least SlowBytes must arrive in every SlowTime after that.
	SlowBytes int64
	SlowTime  time.Duration
	// Hedge enables a second request for reads that take far longer than usual.
	Hedge bool
	// Unversioned accepts objects for which the service has no versions: objects of the same size
	// are considered equal.
	Unversioned bool
	// GetDollars and ListDollars are the prices of one request.
	GetDollars, ListDollars float64
	// FirstContact is how long to keep trying to reach a host that has never answered.
	FirstContact time.Duration
	// Known, if not nil, is an earlier listing to use because the service can't be reached.
	Known *Known
	// Log receives, once each, what a listing has left out and warnings about its versions. It may
	// be nil.
	Log *slog.Logger
	// Trouble is called when a reader has waited for a request for some seconds, repeatedly while
	// that lasts, and when it is over. Calls don't overlap. It may be nil.
	Trouble func(Trouble)
	// Service is the name of the service in Trouble; "" means the source's name.
	Service string
	// Before returns a description of what must complete before requests can be sent, such as
	// getting credentials; "" for nothing. It may be nil.
	Before func() string
}

// DefaultConfig returns the defaults. It has 128 connections: at 25 ms of latency and 3 ms of
// transfer, 128 GETs of 256 KiB are 1.1 GB/s. 95 % of S3's requests return the first byte within
// 200 ms, and then 90 MB/s; the bounds are far below that.
func DefaultConfig() Config {
	return Config{
		Connections: 128, InFlightBytes: 256 << 20, ReadTimeout: 5 * time.Minute,
		FirstContact: firstContact, FirstByteTimeout: 10 * time.Second, SlowBytes: 40 << 10, SlowTime: 10 * time.Second,
	}
}

// MaxConnections bounds Config.Connections: each takes a descriptor and about 100 KiB.
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
