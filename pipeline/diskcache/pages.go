package diskcache

import (
	"encoding/binary"
	"iter"
)

// run are pages of an object, from Begin up to End.
type run struct{ begin, end int64 }

func (r run) pages() int64 { return r.end - r.begin }

func (r run) bytes() int64 { return r.pages() * pageBytes }

// overlap is what two runs have in common; it may be empty (pages() ≤ 0).
func (r run) overlap(o run) run { return run{max(r.begin, o.begin), min(r.end, o.end)} }

// runOf are the pages that a range of bytes touches.
func runOf(off, n int64) run { return run{off / pageBytes, pagesOf(off + n)} }

// sumOf is the i-th of sums as a .sums file has them.
func sumOf(sums []byte, i int64) uint32 { return binary.LittleEndian.Uint32(sums[sumBytes*i:]) }

// alike goes through maximal runs of pages that are here, or are not; sums are those of
// the pages from first on.
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

// join makes one of runs, in order, between which there are at most gap pages.
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

// with adds a page to runs, in order, none of which is behind it.
func with(runs []run, page int64) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].end == page {
		runs[last].end++
		return runs
	}
	return append(runs, run{page, page + 1})
}

// missing are the runs of pages that are not here, joined over gaps of at most gap pages.
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

// add adds a page and says whether it was not there.
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

// remove takes a page out and says whether it was there.
func (s *pageSet) remove(page int64) bool {
	if !s.has(page) {
		return false
	}
	s.words[page>>6] &^= 1 << (page & 63)
	s.n--
	return true
}
