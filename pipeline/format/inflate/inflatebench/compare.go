// Package inflatebench measures how fast gzip members are decoded compared with another library in
// the same process, in alternation, so that other load on the machine affects both.
package inflatebench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	kgzip "github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
)

// Decode decodes a file of gzip members from memory, as the index pass does, and discards the
// bytes. It allocates a decoder per file, as the index pass does.
func Decode(file []byte, p []byte) (n int64, err error) {
	d, err := format.NewDecoded(gzip.Codec{}, bytes.NewReader(file), int64(len(file)), format.Entry{})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return drain(d, p)
}

// Other decodes with the library github.com/klauspost/compress. Its reader is reused.
type Other struct {
	raw  format.Raw
	gzip kgzip.Reader
}

// Decode is the function Decode with the library.
func (o *Other) Decode(file []byte, p []byte) (n int64, err error) {
	o.raw.Reset(bytes.NewReader(file), 0)
	if err := o.gzip.Reset(o.raw.Buffer()); err != nil {
		return 0, err
	}
	return drain(&o.gzip, p)
}

func drain(r io.Reader, p []byte) (n int64, err error) {
	for {
		m, err := r.Read(p)
		n += int64(m)
		if err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// ReadBytes is how much is read at a time in comparisons, a part of a mount's segments.
const ReadBytes = 256 << 10

// Comparison is the result for a row.
type Comparison struct {
	Row   Row
	Ratio float64 // speed relative to the other library: the median of the rounds
	Least float64 // smallest ratio of a round
	Most  float64 // largest ratio of a round
	Speed float64 // decoded bytes per second of CPU time, the median
}

// Compare decodes a row's file with both, each for approximately the duration each in every round.
// ctx ends it early, with its error.
func Compare(ctx context.Context, row Row, rounds int, each time.Duration) (Comparison, error) {
	decoded, file, err := row.File()
	if err != nil {
		return Comparison{}, fmt.Errorf("make %s: %w", row.Name, err)
	}
	runtime.LockOSThread() // its CPU time is measured
	defer runtime.UnlockOSThread()
	var other Other
	var ratios, speeds []float64
	p := make([]byte, ReadBytes)
	for round := range rounds + 1 {
		own, err := speed(ctx, Decode, file, p, int64(len(decoded)), each)
		if err != nil {
			return Comparison{}, fmt.Errorf("decode %s: %w", row.Name, err)
		}
		others, err := speed(ctx, other.Decode, file, p, int64(len(decoded)), each)
		if err != nil {
			return Comparison{}, fmt.Errorf("decode %s by the other library: %w", row.Name, err)
		}
		if round > 0 { // the first one warms up
			ratios, speeds = append(ratios, own/others), append(speeds, own)
		}
	}
	slices.Sort(ratios)
	slices.Sort(speeds)
	return Comparison{Row: row, Ratio: ratios[rounds/2], Least: ratios[0], Most: ratios[rounds-1], Speed: speeds[rounds/2]}, nil
}

// speed returns how many bytes are decoded per second of this thread's CPU time.
func speed(ctx context.Context, decode func(file, p []byte) (int64, error), file, p []byte, size int64, each time.Duration) (float64, error) {
	began, total := threadTime(), int64(0)
	for {
		n, err := decode(file, p)
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes were decoded instead of %d", n, size)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		total += n
		if spent := threadTime() - began; spent >= each {
			return float64(total) / spent.Seconds(), nil
		}
	}
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has it
	}
	return time.Duration(t.Nano())
}
