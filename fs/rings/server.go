package rings

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Server serves a file system of go-fuse through rings. It also reads what the kernel still sends
// through /dev/fuse (FORGET and INTERRUPT), in place of fuse.Server's loop.
type Server struct {
	fuse     *fuse.Server
	protocol *fuse.ProtocolServer
	fd       int // of /dev/fuse, a separate descriptor
	buffer   int // room that the kernel requires, in bytes
	rings    *Rings
	log      *slog.Logger
	late     sync.WaitGroup // interrupts that are being retried
	unheard  chan struct{}  // closed when no client waits for answers any more
}

// Serving reports whether the kernel has agreed to rings: the options need fuse.CAP_OVER_IO_URING
// among ExtraCapabilities, and the kernel must have offered it.
func Serving(s *fuse.Server, o *fuse.MountOptions) bool {
	return s.KernelSettings().Flags64()&o.ExtraCapabilities&fuse.CAP_OVER_IO_URING != 0
}

// NewServer takes the place of s.Serve, if Serving returns true. s was made from the same file
// system and options, and fd is its descriptor, which s continues to own. Requests are answered
// from then on; Serve must be called, even if the file system is unmounted at once. If NewServer
// fails, nothing can be served any more: unmount. Its own descriptor then stays open, for threads
// that have registered.
//
// The kernel sends no interrupt for a request that was still waiting for a thread when its client
// got the signal; requests that wait long must check on the client themselves.
func NewServer(s *fuse.Server, raw fuse.RawFileSystem, o *fuse.MountOptions, fd int, log *slog.Logger) (*Server, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("another descriptor of /dev/fuse: %w", err)
	}
	r := &Server{fuse: s, protocol: fuse.NewProtocolServer(raw, o), fd: own, buffer: o.MaxWrite + 2*pageBytes, log: log, unheard: make(chan struct{})}
	if err := r.greet(s.KernelSettings()); err != nil {
		return nil, errors.Join(err, unix.Close(own))
	}
	if r.rings, err = Start(own, o.MaxWrite, r.answer, log); err != nil {
		return nil, fmt.Errorf("FUSE over io_uring: %w", err)
	}
	return r, nil
}

// greet passes the kernel's INIT to the protocol's server.
func (r *Server) greet(in *fuse.InitIn) error {
	out := make([]byte, pageBytes)
	n, status := r.protocol.HandleRequest([][]byte{greeting(in)}, [][]byte{out})
	if !status.Ok() || n < outHeaderBytes || le.Uint32(out[4:]) != 0 {
		return fmt.Errorf("go-fuse does not take the kernel's INIT again: %v", status)
	}
	return nil
}

// greeting is INIT as the kernel sent it.
func greeting(in *fuse.InitIn) []byte {
	const bytes = inHeaderBytes + 64
	b := make([]byte, bytes)
	le.PutUint32(b[requestLengthAt:], bytes)
	le.PutUint32(b[requestOpcodeAt:], initOpcode)
	le.PutUint64(b[requestUniqueAt:], 1)
	for i, v := range []uint32{in.Major, in.Minor, in.MaxReadAhead, in.Flags, in.Flags2} {
		le.PutUint32(b[inHeaderBytes+4*i:], v)
	}
	return b
}

// answer is the rings' handler.
func (r *Server) answer(q *Request) int {
	in, err := q.In()
	if err != nil {
		r.log.Error("a request that can't be read", "error", err)
		return q.Fail(unix.EIO)
	}
	n, status := r.protocol.HandleRequest(in, q.Out())
	if !status.Ok() || n < outHeaderBytes {
		return q.Fail(unix.EIO)
	}
	return n
}

// Serve returns when the file system is unmounted and no request is in flight.
func (r *Server) Serve() {
	r.read()
	close(r.unheard)
	// A request that a thread has just taken shows up a moment later.
	over := make(chan struct{})
	go func() { r.rings.Wait(); r.late.Wait(); close(over) }()
	for again := time.NewTicker(endAgain); ; {
		for _, u := range r.rings.UnderWay() {
			r.interrupt(u)
		}
		select {
		case <-over:
			again.Stop()
			if err := unix.Close(r.fd); err != nil {
				r.log.Error("close /dev/fuse", "error", err)
			}
			r.fuse.Serve() // finds that all is over, closes its descriptor, and informs the file system
			return
		case <-again.C:
		}
	}
}

const (
	endAgain = 10 * time.Millisecond
	// lateMost is how often an interrupt is retried if its request is not known yet, with pauses
	// that double from lateFirst on: half a second in total.
	lateMost  = 10
	lateFirst = 500 * time.Microsecond
)

// read handles what comes through /dev/fuse until the file system is unmounted.
func (r *Server) read() {
	in, out := make([]byte, r.buffer), make([]byte, pageBytes)
	for {
		n, err := unix.Read(r.fd, in)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENODEV):
			return
		case err != nil || n < inHeaderBytes:
			r.log.Error("read of /dev/fuse", "bytes", n, "error", err)
			return
		}
		if le.Uint32(in[requestOpcodeAt:]) == interruptOpcode && n >= inHeaderBytes+interruptInBytes {
			r.interruptSoon(le.Uint64(in[inHeaderBytes:]))
			continue
		}
		// FORGET, which has no answer. Others would have one.
		m, status := r.protocol.HandleRequest([][]byte{in[:n]}, [][]byte{out})
		if status.Ok() && m > 0 {
			if _, err := unix.Write(r.fd, out[:m]); err != nil && !errors.Is(err, unix.ENOENT) {
				r.log.Error("write to /dev/fuse", "error", err)
			}
		}
	}
}

// interruptSoon interrupts a request. The request may come through its ring a moment later than the
// interrupt through /dev/fuse.
func (r *Server) interruptSoon(unique uint64) {
	if r.interrupt(unique) {
		return
	}
	r.late.Go(func() {
		pause := lateFirst
		for range lateMost {
			select {
			case <-r.unheard:
				return
			case <-time.After(pause):
			}
			if r.interrupt(unique) {
				return
			}
			pause *= 2
		}
	})
}

// interrupt reports whether the request is known; it may have ended.
func (r *Server) interrupt(unique uint64) bool {
	const bytes = inHeaderBytes + interruptInBytes
	in, out := make([]byte, bytes), make([]byte, outHeaderBytes)
	le.PutUint32(in[requestLengthAt:], bytes)
	le.PutUint32(in[requestOpcodeAt:], interruptOpcode)
	le.PutUint64(in[requestUniqueAt:], unique|1)
	le.PutUint64(in[inHeaderBytes:], unique)
	n, status := r.protocol.HandleRequest([][]byte{in}, [][]byte{out})
	return status.Ok() && n == 0 // go-fuse returns EAGAIN if it is not known
}
