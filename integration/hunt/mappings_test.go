package hunt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mapperVariable makes the test's own program a process that reads mappings. A page fault that
// waits for a mount may block its process' address space, and with it all threads of the process,
// so mappings are read by other processes.
const mapperVariable = "LSIOFS_HUNT_MAPPER"

// mapperMain obeys orders, one line each, until the input ends.
func mapperMain() {
	if os.Getenv(mapperVariable) == "" {
		return
	}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var some []mapOrder
		if orders.Decode(&some) != nil {
			os.Exit(0)
		}
		pieces := make([]mapAnswer, len(some))
		var all sync.WaitGroup
		for i, o := range some {
			all.Go(func() { pieces[i] = o.obey() })
		}
		all.Wait()
		if answers.Encode(pieces) != nil {
			os.Exit(1)
		}
	}
}

// mapOrder is an order to map a file of Size bytes, and to read [Off, End) of the mapping.
type mapOrder struct {
	Path           string
	Size, Off, End int64
	Alone          bool // page by page, without the kernel's readahead
	Anew           bool // drop the kernel's pages of the file first
}

// mapAnswer is the result. A page that can't be read is zero in Bytes, and has its error in Errors,
// by its offset in the file.
type mapAnswer struct {
	Bytes  []byte
	Errors map[int64]unix.Errno
	Error  string // any other error
}

const pageBytes = 4096

func (o mapOrder) obey() (a mapAnswer) {
	err := func() error {
		fd, err := unix.Open(o.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd)
		if o.Anew {
			_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) // pages that others have mapped stay
		}
		m, err := unix.Mmap(fd, 0, int(o.Size), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("mmap: %w", err)
		}
		defer unix.Munmap(m)
		if o.Alone {
			if err := unix.Madvise(m, unix.MADV_RANDOM); err != nil {
				return fmt.Errorf("madvise: %w", err)
			}
		}
		copies, err := unix.MemfdCreate("hunt", 0)
		if err != nil {
			return err
		}
		defer unix.Close(copies)
		a.Bytes, a.Errors = make([]byte, o.End-o.Off), map[int64]unix.Errno{}
		for off := o.Off; off < o.End; {
			page := off / pageBytes * pageBytes
			to := min(page+pageBytes, o.End)
			// The kernel copies the page: it returns an error where touching it would kill the
			// process.
			n, err := unix.Pwrite(copies, m[off:to], 0)
			switch {
			case err == nil && int64(n) == to-off:
				_, err = unix.Pread(copies, a.Bytes[off-o.Off:to-o.Off], 0)
				if err != nil {
					return err
				}
			case err == nil:
				a.Errors[page] = unix.EFAULT
			default:
				a.Errors[page] = err.(unix.Errno)
			}
			off = to
		}
		return nil
	}()
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// mapper is a process that reads mappings.
type mapper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startMapper() (*mapper, error) {
	m := &mapper{cmd: exec.Command(os.Args[0])}
	m.cmd.Env = append(environment(), mapperVariable+"=1")
	m.cmd.Stderr = os.Stderr
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = bufio.NewReader(out)
	return m, m.cmd.Start()
}

// read makes the process read mappings, all at once.
func (m *mapper) read(orders ...mapOrder) (answers []mapAnswer, err error) {
	if err = json.NewEncoder(m.in).Encode(orders); err != nil {
		return nil, err
	}
	line, err := m.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the process that reads mappings has ended: %w", err)
	}
	return answers, json.Unmarshal(line, &answers)
}

// close ends the process, by killing it if it does not end by itself.
func (m *mapper) close() {
	m.in.Close()
	killer := time.AfterFunc(endLimit, func() { m.cmd.Process.Kill() })
	defer killer.Stop()
	_ = m.cmd.Wait()
}

// judgeMapped compares what was read from a mapping with its stream.
func (h *hunter) judgeMapped(s *stream, o mapOrder, a mapAnswer, began time.Duration) error {
	h.opened.Add(1)
	if a.Error != "" {
		return fmt.Errorf("%s: %s", s.name, a.Error)
	}
	for off := o.Off; off < o.End; {
		page := off / pageBytes * pageBytes
		to := min(page+pageBytes, o.End)
		h.reads.Add(1)
		var err error
		if errno, failed := a.Errors[page]; failed {
			err = h.judgeError(s, page, int(min(page+pageBytes, s.size())-page), began, errno, unix.EFAULT)
		} else {
			h.bytes.Add(to - off)
			err = h.judge(s, off, a.Bytes[off-o.Off:to-o.Off], began, "read through a mapping")
		}
		if err != nil {
			return err
		}
		off = to
	}
	return nil
}
