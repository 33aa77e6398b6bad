package diskcache

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// Size is what a user says of how large a cache may become. It is a plain value; the
// zero value is auto.
type Size struct {
	Off     bool
	Bytes   int64   // > 0 where it was given
	Percent float64 // of the file system, > 0 where it was given
}

// ParseSize reads a size as --cache-size has it: "auto", "off", a number of bytes with or
// without a unit ("200GiB", "1.5TB"), or a percentage of the file system ("30%").
func ParseSize(text string) (Size, error) {
	switch text {
	case "auto", "":
		return Size{}, nil
	case "off":
		return Size{Off: true}, nil
	}
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent > 0 && percent <= 100) {
			return Size{}, fmt.Errorf("cache size %q: a percentage must be above 0%% and at most 100%%", text)
		}
		return Size{Percent: percent}, nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return Size{}, fmt.Errorf("cache size %q: use auto, off, bytes with a unit such as 200GiB, or a share of the file system such as 30%%", text)
	}
	return Size{Bytes: int64(n)}, nil
}

func (s Size) String() string {
	switch {
	case s.Off:
		return "off"
	case s.Percent > 0:
		return strconv.FormatFloat(s.Percent, 'g', -1, 64) + "%"
	case s.Bytes > 0:
		return humanize.IBytes(uint64(s.Bytes))
	}
	return "auto"
}

// Place is what is known of where a cache is to be, and of what for. Sizes are in bytes.
type Place struct {
	DatasetBytes int64 // of all objects
	Objects      int64
	OpenBytes    int64 // of chunks that have been begun and not come to their end, at most
	TotalBytes   int64 // of the file system
	FreeBytes    int64 // of the file system, for this user
	CacheBytes   int64 // that the cache takes already
	// Ephemeral: what is written here counts for a machine's memory or for a
	// container's own storage, which ends one that takes much (tmpfs, overlayfs).
	Ephemeral bool
	Network   bool // it is a network's file system, or FUSE's
}

// leastEphemeral is what a cache gets on an ephemeral file system even where an order
// needs less.
const leastEphemeral = 1 << 30

// What auto adds to that: file systems take blocks of their own for files in pieces, and what
// others add is known a minute later.
const (
	slackPart  = 64
	leastSlack = 64 << 20
)

// NeedBytes is what a cache takes that holds all of the dataset: its pages, and a sum for
// each; and header and last page of each object.
func (p Place) NeedBytes() int64 {
	return p.DatasetBytes + p.DatasetBytes/(pageBytes/sumBytes) + p.Objects*(headerBytes+2*pageBytes)
}

// Bound is how many bytes a cache may take on its disk; 0 is none. Auto takes what the
// dataset needs beside what the cache has already, which may be of other datasets, where this
// fits into half of what is free (what the cache has counts as free), else that half; on an
// ephemeral file system no more than 1.25 × what is open, or 1 GiB.
func (s Size) Bound(p Place) int64 {
	switch {
	case s.Off:
		return 0
	case s.Bytes > 0:
		return s.Bytes
	case s.Percent > 0:
		return int64(float64(p.TotalBytes) * s.Percent / 100)
	}
	bound := min(p.NeedBytes()+p.NeedBytes()/slackPart+leastSlack+p.CacheBytes, (p.FreeBytes+p.CacheBytes)/2)
	if p.Ephemeral {
		bound = min(bound, max(leastEphemeral, p.OpenBytes+p.OpenBytes/4))
	}
	return bound
}

// Reserve is how much of a file system a cache leaves free where the user does not say:
// a tenth, at most 20 GiB.
func Reserve(totalBytes int64) int64 { return min(totalBytes/10, 20<<30) }
