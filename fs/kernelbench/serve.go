package kernelbench

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs/rings"
)

// Way is how a server talks to the kernel.
type Way struct {
	Pages   int  // bound on a request, in pages of 4 KiB: 256 is 1 MiB
	Uring   bool // requests come and replies go through io_uring
	Clones  bool // each thread has its own descriptor
	Gathers bool // data is copied once before it is sent, as always with Uring
}

// deviceThreads is the number of threads that read /dev/fuse.
const deviceThreads = 4

// dataBytes is the size of the constant data to read from: more than fits into a processor's
// caches.
const dataBytes = 64 << 20

// ErrNotOffered means that the kernel does not offer io_uring for FUSE, or has it disabled.
var ErrNotOffered = errors.New("the kernel does not offer FUSE over io_uring: it needs Linux 6.14 and fuse.enable_uring")

// server is one file system.
type server struct {
	answers
	way     Way
	fd      int
	greeted chan struct{} // closed after INIT
}

// File mounts a file system on a directory, which contains one file, and returns the file's path.
// stop unmounts and waits for the server's threads. It needs root.
func File(dir string, w Way) (path string, stop func() error, err error) {
	s := &server{answers: answers{pages: w.Pages, uring: w.Uring}, way: w, greeted: make(chan struct{})}
	s.data = make([]byte, dataBytes)
	for i := range s.data {
		s.data[i] = byte(i * 7)
	}
	if s.fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return "", nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,max_read=%d", s.fd, os.Getuid(), os.Getgid(), w.Pages*pageBytes)
	if err := unix.Mount("kernelbench", dir, "fuse.kernelbench", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", nil, errors.Join(fmt.Errorf("mount %s: %w", dir, err), unix.Close(s.fd))
	}
	var threads errgroup.Group
	threads.Go(func() error { return s.device(s.fd) })
	stop = func() error {
		err := unix.Unmount(dir, 0)
		return errors.Join(err, threads.Wait(), unix.Close(s.fd))
	}
	<-s.greeted
	if w.Uring && !s.offered {
		return "", nil, errors.Join(ErrNotOffered, stop())
	}
	if w.Uring {
		r, err := rings.Start(s.fd, w.Pages*pageBytes, s.ringed, slog.Default())
		if r != nil {
			threads.Go(func() error { r.Wait(); return nil })
		}
		if err != nil {
			return "", nil, errors.Join(err, stop())
		}
		return filepath.Join(dir, "file"), stop, nil
	}
	for range deviceThreads - 1 {
		fd := s.fd
		if w.Clones {
			if fd, err = cloned(s.fd); err != nil {
				return "", nil, errors.Join(err, stop())
			}
		}
		threads.Go(func() error {
			err := s.device(fd)
			if fd != s.fd {
				err = errors.Join(err, unix.Close(fd))
			}
			return err
		})
	}
	return filepath.Join(dir, "file"), stop, nil
}

// ringed answers a request that has come through a ring.
func (s *server) ringed(r *rings.Request) (replyBytes int) {
	in, err := r.In()
	if err != nil {
		return r.Fail(unix.EIO)
	}
	header, out := in[0], r.Out()
	unique := le.Uint64(header[8:])
	n, data, errno := s.reply(r.Opcode(), le.Uint64(header[16:]), in[1], out[1])
	copy(out[1], data)
	putHeader(out[0], n, errno, unique)
	return outHeaderBytes + n
}

// clone is the ioctl that attaches another descriptor of /dev/fuse to the same mount.
const clone = 0x8004e500

// cloned returns another descriptor of a mount, with a queue of its own.
func cloned(fd int) (int, error) {
	other, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	number := uint32(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(other), clone, uintptr(unsafe.Pointer(&number))); errno != 0 {
		return -1, errors.Join(fmt.Errorf("clone /dev/fuse: %w", errno), unix.Close(other))
	}
	return other, nil
}

// device answers requests from a descriptor until the file system is unmounted.
func (s *server) device(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in := make([]byte, s.pages*pageBytes+64<<10)
	gathered := make([]byte, s.pages*pageBytes)
	out := make([]byte, pageBytes)
	for {
		n, err := unix.Read(fd, in)
		switch {
		case err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN:
			continue
		case err == unix.ENODEV:
			return nil
		case err != nil:
			return fmt.Errorf("read /dev/fuse: %w", err)
		}
		op := le.Uint32(in[4:])
		if op == opForget || op == opBatchForget || op == opInterrupt {
			continue
		}
		m, data, errno := s.reply(op, le.Uint64(in[16:]), in[inHeaderBytes:n], out[outHeaderBytes:])
		putHeader(out, m, errno, le.Uint64(in[8:]))
		if data != nil && s.way.Gathers {
			data = gathered[:copy(gathered, data)]
		}
		if data != nil {
			_, err = unix.Writev(fd, [][]byte{out[:outHeaderBytes], data})
		} else {
			_, err = unix.Write(fd, out[:outHeaderBytes+m])
		}
		if err != nil && err != unix.ENOENT { // ENOENT: the client is gone
			return fmt.Errorf("write /dev/fuse: %w", err)
		}
		if op == opInit {
			close(s.greeted)
		}
	}
}
