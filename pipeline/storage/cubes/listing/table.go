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

// entry is an object as it was listed. The zero value is one that is absent.
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

// mappedBytes is from which size on lists lie outside of the heap: the collector would count what
// is larger, and let as much garbage pile up. Many small ones stay there, as a process may have
// only 65 530 mappings.
const mappedBytes = 1 << 20

// elements makes a list of n elements, which have no pointers. mapped is what it lies in, if that
// is outside of the heap.
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

// records are objects while they are listed.
type records struct {
	list   []numbered
	mapped []byte // nil where list is on the heap
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

// grow makes room for n in all. What is mapped stays the same memory, and is not there twice.
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

// settle sorts what was listed by number, each place once.
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

// table has the objects of an array: where at least half of a grid is there one entry a place, else
// what is there, by number. It does not change, and goes when nobody refers to it.
type table struct {
	dense   []entry
	sparse  []place
	present int64
	largest int64 // size
}

// newTable makes the table of a grid of total places, of records that are settled.
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

// heldBytes is what the table takes.
func (t *table) heldBytes() int64 {
	return int64(len(t.dense))*int64(unsafe.Sizeof(entry{})) + int64(len(t.sparse))*int64(unsafe.Sizeof(place{}))
}

// at is the entry of a place.
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
