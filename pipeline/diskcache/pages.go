package diskcache

import (
	"encoding/binary"
	"iter"
)

// run is the pages of an object from begin to end-1.
type run struct{ begin, end int64 }

func (r run) pages() int64 { return r.end - r.begin }

func (r run) bytes() int64 { return r.pages() * pageBytes }

// overlap returns the pages that two runs have in common; the result may be empty (pages() ≤ 0).
func (r run) overlap(o run) run { return run{max(r.begin, o.begin), min(r.end, o.end)} }

// runOf returns the pages that a range of bytes touches.
func runOf(off, n int64) run { return run{off / pageBytes, pagesOf(off + n)} }

// sumOf returns the i-th of sums, which are as in a .sums file.
func sumOf(sums []byte, i int64) uint32 { return binary.LittleEndian.Uint32(sums[sumBytes*i:]) }

// alike iterates over the maximal runs of pages that are cached, or are not; sums are those of the
// pages from first on.
func alike(sums []byte, first int64) iter.Seq2[run, bool] {
	return func(yield func(run, bool) bool) {
		n := int64(len(sums) / sumBytes)
		for i := int64(0); i < n; {
			here, j := sumOf(sums, i) != 0, i+1
			for j < n && (sumOf(sums, j) != 0) == here {
				j++
			}
			if !yield(run{first + i, first + j}, here) {
				return
			}
			i = j
		}
	}
}

// join joins runs, which are in order, with at most gap pages between them.
func join(runs []run, gap int64) []run {
	joined := runs[:0]
	for _, r := range runs {
		if last := len(joined) - 1; last >= 0 && r.begin-joined[last].end <= gap {
			joined[last].end = r.end
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// with adds a page to runs, which are in order. The page is not before any of them.
func with(runs []run, page int64) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].end == page {
		runs[last].end++
		return runs
	}
	return append(runs, run{page, page + 1})
}

// missing returns the runs of missing pages, joined over gaps of at most gap pages.
func missing(sums []byte, first, gap int64) []run {
	var runs []run
	for r, here := range alike(sums, first) {
		if !here {
			runs = append(runs, r)
		}
	}
	return join(runs, gap)
}

// pageSet is a set of pages of one object. The zero value is empty.
type pageSet struct {
	words []uint64
	n     int64
}

func (s *pageSet) has(page int64) bool {
	return page>>6 < int64(len(s.words)) && s.words[page>>6]>>(page&63)&1 == 1
}

// add adds a page, and reports whether it was not in the set.
func (s *pageSet) add(page int64) bool {
	if s.has(page) {
		return false
	}
	for page>>6 >= int64(len(s.words)) {
		s.words = append(s.words, 0)
	}
	s.words[page>>6] |= 1 << (page & 63)
	s.n++
	return true
}

// remove removes a page, and reports whether it was in the set.
func (s *pageSet) remove(page int64) bool {
	if !s.has(page) {
		return false
	}
	s.words[page>>6] &^= 1 << (page & 63)
	s.n--
	return true
}
