package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// sizeValue is a flag that takes a number of bytes, with or without a unit.
type sizeValue[T int64 | uint64] struct{ p *T }

func (v sizeValue[T]) String() string {
	if v.p == nil {
		return "0"
	}
	return terminal.Size(uint64(*v.p))
}

func (v sizeValue[T]) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is not a size: write a number of bytes, or one with a unit, such as 256KiB or 1GiB", s)
	}
	*v.p = T(n)
	return nil
}

func (v sizeValue[T]) Type() string { return "size" }

// enumValue is a flag that takes one of a few words. spec.Validate checks them, together with all
// other problems.
type enumValue[T ~string] struct {
	p       *T
	allowed []string
}

func (v enumValue[T]) String() string {
	if v.p == nil {
		return ""
	}
	return string(*v.p)
}

func (v enumValue[T]) Set(s string) error { *v.p = T(s); return nil }
func (v enumValue[T]) Type() string       { return strings.Join(v.allowed, "|") }

// passPartValue is the value of --part of index, such as "3/8".
type passPartValue catalog.PassPart

func (v *passPartValue) set() bool { return v.Count > 0 }

func (v *passPartValue) String() string {
	if !v.set() {
		return ""
	}
	return strconv.Itoa(v.Index) + "/" + strconv.Itoa(v.Count)
}

func (v *passPartValue) Set(s string) error {
	i, n, ok := strings.Cut(s, "/")
	index, errI := strconv.ParseUint(i, 10, 31)
	count, errN := strconv.ParseUint(n, 10, 31)
	if !ok || errI != nil || errN != nil || index >= count {
		return fmt.Errorf("%q is not a part: write i/n, counted from 0: of eight parts, 0/8 is the first and 7/8 the last", s)
	}
	*v = passPartValue{int(index), int(count)}
	return nil
}

func (v *passPartValue) Type() string { return "i/n" }

// shareValue is the value of --worker: "2/4", or "2" of the number that --workers gives.
type shareValue struct {
	worker, workers uint64
	set, both       bool
}

func (v *shareValue) String() string {
	if !v.set {
		return "0"
	}
	if v.both {
		return fmt.Sprintf("%d/%d", v.worker, v.workers)
	}
	return strconv.FormatUint(v.worker, 10)
}

func (v *shareValue) Set(s string) error {
	w, of, both := strings.Cut(s, "/")
	worker, err := strconv.ParseUint(w, 10, 32)
	workers := uint64(0)
	if err == nil && both {
		workers, err = strconv.ParseUint(of, 10, 32)
	}
	if err != nil {
		return fmt.Errorf("%q is not a worker: write w/W, such as 0/4 for the first of four", s)
	}
	*v = shareValue{worker: worker, workers: workers, set: true, both: both}
	return nil
}

func (v *shareValue) Type() string { return "w/W" }

// parseCounts parses comma-separated numbers of records, such as "5120,5119".
func parseCounts(s string) ([]uint64, error) {
	var counts []uint64
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number of records: write one number a worker, with commas between them", part)
		}
		counts = append(counts, n)
	}
	return counts, nil
}
