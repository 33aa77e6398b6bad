package listing

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// entry is an object as it was listed. The zero value means absent.
type entry struct {
	sizeBytes, modTimeNanos int64
	inode                   uint64
}

// place is an entry with its number in the grid of objects.
type place struct {
	number int64
	entry
}

// numbered is a place as it was listed.
type numbered struct {
	place
	changeTimeNanos int64
}

// mappedBytes is the size from which lists are mapped outside the heap: the garbage collector would
// count them, and let as much garbage pile up. Small lists stay on the heap, because a process may
// only have 65 530 mappings.
const mappedBytes = 1 << 20

// elements makes a list of n elements without pointers. mapped is its memory if it is outside the
// heap.
func elements[T any](n int) (list []T, mapped []byte, err error) {
	var zero T
	bytes := uintptr(n) * unsafe.Sizeof(zero)
	if bytes < mappedBytes {
		return make([]T, n), nil, nil
	}
	mapped, err = unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, fmt.Errorf("memory for a listing of %d objects: %w", n, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mapped))), n), mapped, nil
}

// records are the objects of an array while they are listed.
type records struct {
	list   []numbered
	mapped []byte // nil if list is on the heap
}

func (r *records) add(x numbered) error {
	if n := len(r.list); n == cap(r.list) {
		if err := r.grow(max(2*n, 16)); err != nil {
			return err
		}
	}
	r.list = append(r.list, x)
	return nil
}

// grow makes room for n in total. A mapping is moved rather than copied, so it never takes its
// memory twice.
func (r *records) grow(n int) error {
	have := len(r.list)
	if r.mapped == nil {
		larger, mapped, err := elements[numbered](n)
		if err != nil {
			return err
		}
		copy(larger, r.list)
		r.list, r.mapped = larger[:have], mapped
		return nil
	}
	mapped, err := unix.Mremap(r.mapped, n*int(unsafe.Sizeof(numbered{})), unix.MREMAP_MAYMOVE)
	if err != nil {
		return fmt.Errorf("memory for a listing of %d objects: %w", n, err)
	}
	r.list, r.mapped = unsafe.Slice((*numbered)(unsafe.Pointer(unsafe.SliceData(mapped))), n)[:have], mapped
	return nil
}

func (r *records) free() {
	if r.mapped != nil {
		_ = unix.Munmap(r.mapped)
	}
	*r = records{}
}

// settle sorts the records by number, and removes duplicates.
func (r *records) settle() error {
	slices.SortFunc(r.list, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	n := 0
	for i, x := range r.list {
		if i > 0 && x.number == r.list[n-1].number {
			if x != r.list[n-1] {
				return storage.ErrChanged
			}
			continue
		}
		r.list[n] = x
		n++
	}
	r.list = r.list[:n]
	return nil
}

// table holds the objects of an array: if at least half of the grid exists, one entry per place,
// otherwise those that exist, by number. It is immutable, and unmapped when it becomes garbage.
type table struct {
	dense   []entry
	sparse  []place
	present int64
	largest int64 // size of the largest object
}

// newTable makes the table for a grid of total places from settled records.
func newTable(list []numbered, total int64) (*table, error) {
	t := &table{present: int64(len(list))}
	for i := range list {
		t.largest = max(t.largest, list[i].sizeBytes)
	}
	var mapped []byte
	var err error
	if total <= 2*t.present {
		if t.dense, mapped, err = elements[entry](int(total)); err != nil {
			return nil, err
		}
		for i := range list {
			t.dense[list[i].number] = list[i].entry
		}
	} else {
		if t.sparse, mapped, err = elements[place](len(list)); err != nil {
			return nil, err
		}
		for i := range list {
			t.sparse[i] = list[i].place
		}
	}
	if mapped != nil {
		runtime.AddCleanup(t, func(b []byte) { _ = unix.Munmap(b) }, mapped)
	}
	return t, nil
}

// heldBytes returns the memory of the table.
func (t *table) heldBytes() int64 {
	return int64(len(t.dense))*int64(unsafe.Sizeof(entry{})) + int64(len(t.sparse))*int64(unsafe.Sizeof(place{}))
}

// at returns the entry of a place.
func (t *table) at(number int64) (e entry, present bool) {
	if t.dense != nil {
		e = t.dense[number]
		present = e != entry{}
	} else if i, found := sort.Find(len(t.sparse), func(i int) int { return cmp.Compare(number, t.sparse[i].number) }); found {
		e, present = t.sparse[i].entry, true
	}
	runtime.KeepAlive(t)
	return e, present
}
