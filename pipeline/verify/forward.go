package verify

import (
	"context"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// forward reads objects from front to back, with several reads under way ahead
// of what is asked for. It is an io.ReaderAt for one goroutine; a jump costs the
// reads that were under way. It owns its memory, parts of partBytes each.
type forward struct {
	ctx     context.Context
	storage storage.Storage
	object  storage.Object
	memory  []byte
	parts   []part
	part    int64 // bytes
	head    int   // of the parts, the one that holds the earliest bytes
	held    int   // parts that hold bytes or wait for them
	next    int64 // offset of the next read
	reached int64 // the bytes up to here have been told to arrived
	failure error // what the storage said, sticky until a jump
	arrived func(n int64)
}

// part is one read: under way until done has told, once.
type part struct {
	read    storage.Read
	done    chan error
	waiting bool
	at      int64
	n       int
}

// newForward makes a reader with depth reads of partBytes under way. arrived is
// told of bytes that are asked for the first time.
func newForward(ctx context.Context, s storage.Storage, partBytes int64, depth int, arrived func(n int64)) (*forward, error) {
	memory, err := uring.Map(int(partBytes) * depth)
	if err != nil {
		return nil, err
	}
	f := &forward{ctx: ctx, storage: s, memory: memory, parts: make([]part, depth), part: partBytes, arrived: arrived}
	for i := range f.parts {
		p := &f.parts[i]
		p.done = make(chan error, 1)
		p.read.Done = func(err error) { p.done <- err }
	}
	return f, nil
}

// open turns to another object, from its start. Nothing is read before ReadAt.
func (f *forward) open(o storage.Object) error {
	f.object, f.reached = o, 0
	return f.jump(0)
}

// jump gives up what is held and goes on at an offset.
func (f *forward) jump(to int64) error {
	for f.held > 0 {
		if err := f.await(&f.parts[f.head]); err != nil {
			return err
		}
		f.drop()
	}
	f.next, f.failure = to-to%f.part, nil
	return nil
}

// await waits for a part's read. An error is of the context: the storage may
// then still write to the part.
func (f *forward) await(p *part) error {
	if !p.waiting {
		return nil
	}
	select {
	case err := <-p.done:
		p.waiting = false
		if err != nil {
			p.n = 0
			if f.failure == nil {
				f.failure = err
			}
		}
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

// drop lets go of the earliest part.
func (f *forward) drop() {
	f.head = (f.head + 1) % len(f.parts)
	f.held--
}

// ahead puts reads under way until all parts are used.
func (f *forward) ahead() {
	var reads []*storage.Read
	for f.held < len(f.parts) && f.next < f.object.SizeBytes {
		i := (f.head + f.held) % len(f.parts)
		p := &f.parts[i]
		p.at, p.n = f.next, int(min(f.part, f.object.SizeBytes-f.next))
		p.read.Object, p.read.OffsetBytes = f.object, p.at
		p.read.Buf = f.memory[int64(i)*f.part:][:p.n]
		p.waiting = true
		reads = append(reads, &p.read)
		f.held++
		f.next += int64(p.n)
	}
	if len(reads) > 0 {
		f.storage.Submit(reads)
	}
}

// ReadAt fills p, or as much as the object has, with io.EOF.
func (f *forward) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: read at offset %d", f.object.Path, off)
	}
	n := 0
	for n < len(p) && off+int64(n) < f.object.SizeBytes {
		b, err := f.at(off + int64(n))
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// at gives the bytes that are there from an offset on, at least one.
func (f *forward) at(off int64) ([]byte, error) {
	if f.held == 0 || off < f.parts[f.head].at || off >= f.next {
		if err := f.jump(off); err != nil {
			return nil, err
		}
	}
	for f.held > 0 && off >= f.parts[f.head].at+f.part {
		if err := f.await(&f.parts[f.head]); err != nil {
			return nil, err
		}
		f.drop()
	}
	f.ahead()
	p := &f.parts[f.head]
	if err := f.await(p); err != nil {
		return nil, err
	}
	if f.failure != nil {
		return nil, f.failure
	}
	if end := p.at + int64(p.n); end > f.reached {
		f.arrived(end - f.reached)
		f.reached = end
	}
	return p.read.Buf[off-p.at:], nil
}

// close frees the memory once no read is under way. Where the context has ended,
// a read may be for ever under way: its memory is then left to the process.
func (f *forward) close() {
	if f.jump(0) == nil {
		_ = uring.Unmap(f.memory) // it fails for memory that is none of Map's
	}
}
