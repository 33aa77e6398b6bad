package uring

import (
	"bytes"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// fakeRing is a kernel that is as awkward as allowed, driven by a seed: it takes some of the
// entries, completes them in any order, in parts, and with errors that mean "again". It reads the
// files for real. Like a ring, it belongs to the owner's goroutine.
type fakeRing struct {
	random      *rand.Rand
	errorsIn100 int  // in the results of reads
	started     bool // the first call succeeds, because an engine uses it to decide whether there is a ring

	entries   [ringEntries]gouring.SQEntry
	free      []*gouring.SQEntry
	filled    []*gouring.SQEntry
	submitted []gouring.SQEntry
	events    []gouring.CQEvent

	registering func() error // registers buffers; if nil, registering fails now and then
	pinned      []byte
	wrong       []string
	closed      bool
}

func newFakeRing(seed uint64, errorsIn100 int) *fakeRing {
	f := &fakeRing{random: rand.New(rand.NewPCG(seed, 1)), errorsIn100: errorsIn100}
	for i := range f.entries {
		f.free = append(f.free, &f.entries[i])
	}
	return f
}

func (f *fakeRing) NextSQE() (*gouring.SQEntry, error) {
	// Full, or pretending to be; but not while nothing in it will complete.
	if len(f.free) == 0 || f.one(20) && f.reads() > 0 {
		return nil, gouring.ErrSQOverflow
	}
	e := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.filled = append(f.filled, e)
	return e, nil
}

// reads counts the submitted entries except the wake-up.
func (f *fakeRing) reads() (n int) {
	for _, e := range f.submitted {
		if e.UserData != wakeUserData {
			n++
		}
	}
	return n
}

// one returns true once in n times.
func (f *fakeRing) one(n int) bool { return f.random.IntN(n) == 0 }

func (f *fakeRing) SubmitAndWaitCQEvents(n uint32) (*gouring.CQEvent, error) {
	take := len(f.filled)
	first := !f.started
	f.started = true
	if !first && f.one(4) {
		take = f.random.IntN(take + 1)
	}
	for _, e := range f.filled[:take] {
		f.submitted = append(f.submitted, *e)
		*e = gouring.SQEntry{OpCode: 255} // entries that were taken are not read again
		f.free = append(f.free, e)
	}
	f.filled = append(f.filled[:0], f.filled[take:]...)
	if !first && f.one(10) {
		return nil, os.NewSyscallError("io_uring_enter", []error{unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOMEM}[f.random.IntN(4)])
	}
	if n == 0 {
		return nil, unix.EAGAIN
	}
	if len(f.submitted) == 0 && len(f.events) == 0 {
		return nil, os.NewSyscallError("io_uring_enter", unix.EINTR) // a kernel would wait forever
	}
	for complete := 1 + f.random.IntN(8); complete > 0 && len(f.submitted) > 0; complete-- {
		f.completeOne()
	}
	if len(f.events) == 0 {
		return nil, os.NewSyscallError("io_uring_enter", unix.EINTR)
	}
	return &f.events[0], nil
}

// completeOne completes any of the submitted entries; the wake-up only if there is one, for which
// it waits if there is nothing else.
func (f *fakeRing) completeOne() {
	i := f.random.IntN(len(f.submitted))
	e := f.submitted[i]
	if e.UserData == wakeUserData {
		timeout := 0
		if len(f.submitted) == 1 && len(f.events) == 0 && len(f.filled) == 0 {
			timeout = -1
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: e.Fd, Events: unix.POLLIN}}, timeout)
		if n == 0 || err != nil {
			return
		}
	}
	f.submitted = append(f.submitted[:i], f.submitted[i+1:]...)
	f.events = append(f.events, gouring.CQEvent{UserData: e.UserData, Res: f.result(e)})
}

func (f *fakeRing) result(e gouring.SQEntry) int32 {
	if e.OpCode != uint8(gouring.ReadCode) && e.OpCode != opReadFixed || e.Len == 0 {
		f.wrong = append(f.wrong, "an entry that is no read")
	}
	buf := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&e.Addr))), e.Len)
	if e.OpCode == opReadFixed && (e.BufIG != 0 || !f.holds(buf)) {
		f.wrong = append(f.wrong, "a read into memory that is not registered")
	}
	if e.UserData != wakeUserData {
		if f.random.IntN(100) < f.errorsIn100 {
			return -int32([]unix.Errno{unix.EINTR, unix.EAGAIN, unix.EIO}[f.random.IntN(3)])
		}
		if f.one(4) {
			buf = buf[:1+f.random.IntN(len(buf))]
		}
		n, err := unix.Pread(int(e.Fd), buf, int64(e.Off))
		if err != nil {
			return -int32(err.(unix.Errno))
		}
		return int32(n)
	}
	n, err := unix.Read(int(e.Fd), buf)
	if err != nil {
		return -int32(err.(unix.Errno))
	}
	return int32(n)
}

func (f *fakeRing) PeekCQEventBatch(to []*gouring.CQEvent) int {
	n := min(len(to), len(f.events))
	for i := range n {
		to[i] = &f.events[i]
	}
	return n
}

func (f *fakeRing) AdvanceCQ(n uint32) { f.events = append([]gouring.CQEvent(nil), f.events[n:]...) }

func (f *fakeRing) RegisterBuffers(buffers []syscall.Iovec) error {
	if f.registering == nil && f.one(2) {
		return os.NewSyscallError("io_uring_register", unix.ENOMEM)
	}
	if f.registering != nil {
		if err := f.registering(); err != nil {
			return err
		}
	}
	f.pinned = unsafe.Slice(buffers[0].Base, buffers[0].Len)
	return nil
}

func (f *fakeRing) UnRegisterBuffers() error {
	f.pinned = nil
	return nil
}

// holds reports whether registered memory contains all of buf.
func (f *fakeRing) holds(buf []byte) bool {
	if len(f.pinned) == 0 {
		return false
	}
	from := uintptr(unsafe.Pointer(&buf[0])) - uintptr(unsafe.Pointer(&f.pinned[0]))
	return from < uintptr(len(f.pinned)) && uintptr(len(buf)) <= uintptr(len(f.pinned))-from
}

func (f *fakeRing) close() error {
	if f.pinned != nil {
		f.wrong = append(f.wrong, "closed with registered memory")
	}

	f.closed = true
	if len(f.submitted)+len(f.filled)+len(f.events) > 0 {
		f.wrong = append(f.wrong, "closed with reads under way")
	}
	return nil
}

// TestEveryRequestCompletesOnceForAnyKernelBehavior runs seeded schedules of a
// kernel's answers. Requests come in several batches, with descriptors and files, direct or not;
// the engine is closed while they run.
func TestEveryRequestCompletesOnceForAnyKernelBehavior(t *testing.T) {
	dir := t.TempDir()
	fd, content := testFile(t, dir, 400_003)
	other, otherContent := testFile(t, dir, 5000)
	rapid.Check(t, func(t *rapid.T) {
		kernel := newFakeRing(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int{0, 10, 60}).Draw(t, "errors in 100"))
		e, err := openRinged("", func() (kernelRing, error) { return kernel, nil })
		require.NoError(t, err)
		direct := NewFile(fd, DirectAlways)
		defer closeDirect(t, direct)
		misaligned := NewFile(fd, DirectAlways) // all its direct reads return EINVAL
		defer closeDirect(t, misaligned)
		if d := misaligned.openDirect(&counters{}); d != nil {
			d.offsetAlignment, d.memoryAlignment = 1, 1
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "requests"), 2))
		var requests []*Request
		contents := map[*Request][]byte{}
		for range rapid.IntRange(1, 300).Draw(t, "number") {
			r := &Request{FD: fd, OffsetBytes: random.Int64N(401_000), Buf: make([]byte, 1+random.IntN(30_000))}
			contents[r] = content
			switch random.IntN(5) {
			case 0:
				r.FD = other
				contents[r] = otherContent
			case 1:
				r.File = direct
			case 2:
				r.File = misaligned
			}
			requests = append(requests, r)
		}
		results := make([]result, len(requests))
		calls := make([]int, len(requests)) // each incremented by one goroutine; Close comes after all
		for i, r := range requests {
			r.Done = func(n int, err error) {
				results[i] = result{n, err}
				calls[i]++
			}
		}
		for first := 0; first < len(requests); {
			n := min(1+random.IntN(60), len(requests)-first)
			e.Submit(requests[first : first+n])
			first += n
		}
		require.NoError(t, e.Close())
		for i, r := range requests {
			require.Equal(t, 1, calls[i])
			want := wanted(contents[r], r.OffsetBytes, len(r.Buf))
			require.Equal(t, result{n: len(want)}, results[i])
			require.True(t, bytes.Equal(want, r.Buf[:len(want)]))
		}
		require.Empty(t, kernel.wrong)
		require.True(t, kernel.closed)
		require.Zero(t, e.Status().InFlight)
		require.Zero(t, e.Status().InFlightBytes)
		o := &e.reader.(*ringReader).owner
		require.Len(t, o.free, ringSlots)
		require.Zero(t, o.bytes)
		for i := range o.slots {
			require.Zero(t, o.slots[i].request, "no buffer is held")
		}
	})
}

func closeDirect(t require.TestingT, f *File) {
	if d := f.direct.Load(); d != nil {
		require.NoError(t, unix.Close(d.fd))
	}
}

// TestPermanentlyFailingReadsFailOnce uses a kernel that returns nothing but errors.
func TestPermanentlyFailingReadsFailOnce(t *testing.T) {
	kernel := newFakeRing(1, 100)
	e, err := openRinged("", func() (kernelRing, error) { return kernel, nil })
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	fd, content := testFile(t, t.TempDir(), 100)
	r := &Request{FD: fd, Buf: make([]byte, 100)}
	require.Equal(t, []result{{n: 100}}, readAll(t, e, []*Request{r}), "pread has what the ring has not")
	require.Equal(t, content, r.Buf)
	memory := openFD(t, "/proc/self/mem", unix.O_RDONLY) // nothing is mapped at its start
	require.Equal(t, []result{{err: unix.EIO}}, readAll(t, e, []*Request{{FD: memory, Buf: make([]byte, 10)}}))
}
