package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs"
)

// Process is a process of PartCommand, which answers each line of JSON with another. It is not safe
// for concurrent use.
type Process struct {
	Cmd     *exec.Cmd
	in      io.WriteCloser
	Jobs    *json.Encoder
	answers *json.Decoder
	said    bytes.Buffer // its stderr
}

// StartProcess starts a part; file, if not nil, becomes its descriptor 3.
func StartProcess(self string, file *os.File, args ...string) (*Process, error) {
	p := &Process{Cmd: exec.Command(self, append([]string{PartCommand}, args...)...)}
	if file != nil {
		p.Cmd.ExtraFiles = []*os.File{file}
	}
	p.Cmd.Stderr = &p.said
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // this process handles Ctrl-C
	in, err := p.Cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.Jobs, p.answers = in, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	if err := p.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("start bench's process %s: %w", args[0], err)
	}
	return p, nil
}

// Hear waits for the next answer.
func (p *Process) Hear(answer any) error {
	if err := p.answers.Decode(answer); err != nil {
		return fmt.Errorf("bench's process %s ended: %w: %s", p.Cmd.Args[2], err, bytes.TrimSpace(p.said.Bytes()))
	}
	return nil
}

// Kill ends the process, whatever it is doing.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // an error means that it has ended
	_ = p.Cmd.Wait()         // reports that it was killed
}

// reader is a part that reads files.
type reader struct{ *Process }

// StartReader starts a reader; file, if not nil, becomes its descriptor 3.
func StartReader(self string, file *os.File) (*reader, error) {
	p, err := StartProcess(self, file, "read")
	return &reader{p}, err
}

// Start sends a job, whose answer Finish waits for.
func (r *reader) Start(j ReadJob) error { return r.Jobs.Encode(j) }

// finish waits for the answer to start.
func (r *reader) finish() (ReadDone, error) {
	var d ReadDone
	if err := r.Hear(&d); err != nil {
		return d, err
	}
	if d.Error != "" {
		return d, errors.New(d.Error)
	}
	return d, nil
}

// Server is a process that serves a mount.
type Server struct {
	Cmd   *exec.Cmd
	Point string
	in    io.Closer // a ceiling ends when this is closed; nil for a mount
	ended chan error
}

// servedBy takes over a process whose mount is ready.
func servedBy(cmd *exec.Cmd, point string, in io.Closer) *Server {
	s := &Server{Cmd: cmd, Point: point, in: in, ended: make(chan error, 1)}
	go func() { s.ended <- cmd.Wait() }()
	return s
}

// startCeiling mounts the ceiling in a separate process.
func (p Program) startCeiling(ctx context.Context, point string, streamBytes int64, log *os.File) (*Server, error) {
	cmd := exec.Command(p.Self, PartCommand, "serve", point, fmt.Sprint(streamBytes), fmt.Sprint(p.Rings))
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the ceiling: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		_ = in.Close()
		_ = cmd.Wait() // the log has its output
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("the ceiling could not be mounted: %w: %s", errors.Join(ctx.Err(), err), bytes.TrimSpace(said))
	}
	return servedBy(cmd, point, in), nil
}

// endTime bounds how long a server may take to unmount. It is more than the server gives its
// readers.
const endTime = 20 * time.Second

// Stop unmounts and waits for the process. The mount is gone in any case.
func (s *Server) Stop() error {
	if s.in != nil {
		_ = s.in.Close() // an error means that it has ended
	}
	_ = s.Cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case err := <-s.ended:
		if err != nil {
			err = fmt.Errorf("the server of %s: %w", s.Point, err)
		}
		return errors.Join(err, s.sweep())
	case <-time.After(endTime):
		_ = s.Cmd.Process.Kill()
		<-s.ended
		return errors.Join(fmt.Errorf("the server of %s did not end within %v and was killed", s.Point, endTime), s.sweep())
	}
}

// sweep removes a mount that a server has left behind, and its directory.
func (s *Server) sweep() error {
	mounts, err := fs.Mounts()
	if err != nil {
		return err
	}
	if _, left := fs.TopMount(mounts, s.Point); left {
		if err := unix.Unmount(s.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			// It is a user's mount, which the helper may unmount.
			if out, herr := exec.Command("fusermount3", "-u", "-z", "--", s.Point).CombinedOutput(); herr != nil {
				return fmt.Errorf("%s is still mounted: %w: %s", s.Point, errors.Join(err, herr), bytes.TrimSpace(out))
			}
		}
	}
	return os.Remove(s.Point)
}

// Counts are the server's counters that matter here.
type Counts struct {
	CPU       time.Duration
	reads     uint64 // of storage
	readBytes uint64
	sent      int64
	held      int64
	strategy  string
	engine    string
	Fill      float64 // of its cache, 0…1; 1 without a cache
	Sealed    int     // objects in its cache that are read like local files
}

// Look reads status.json. The time for that is not part of the measurement: cpu is read after it at
// the start of a measurement (before), and before it at the end.
func (s *Server) Look(before bool) (Counts, error) {
	var c Counts
	var err error
	if !before {
		if c.CPU, err = ProcessCPU(s.Cmd.Process.Pid); err != nil {
			return c, err
		}
	}
	if err := s.status(&c); err != nil {
		return c, err
	}
	if before {
		c.CPU, err = ProcessCPU(s.Cmd.Process.Pid)
	}
	return c, err
}

func (s *Server) status(c *Counts) error {
	b, err := os.ReadFile(filepath.Join(s.Point, "status.json"))
	if err != nil {
		return err
	}
	var r struct {
		Traffic struct {
			SentBytes int64 `json:"sent_bytes"`
		} `json:"traffic"`
		Pipeline struct {
			Engine struct {
				Engine    string `json:"engine"`
				Reads     uint64 `json:"reads"`
				ReadBytes uint64 `json:"read_bytes"`
			} `json:"engine"`
			Fetch struct {
				Strategy  string `json:"strategy"`
				HeldBytes int64  `json:"held_bytes"`
			} `json:"fetch"`
			Cache *struct {
				Fill   float64 `json:"fill"`
				Sealed int     `json:"sealed_objects"`
			} `json:"cache"`
		} `json:"pipeline"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s/status.json: %w", s.Point, err)
	}
	c.reads, c.readBytes, c.engine = r.Pipeline.Engine.Reads, r.Pipeline.Engine.ReadBytes, r.Pipeline.Engine.Engine
	c.sent, c.held, c.strategy = r.Traffic.SentBytes, r.Pipeline.Fetch.HeldBytes, r.Pipeline.Fetch.Strategy
	c.Fill = 1
	if r.Pipeline.Cache != nil {
		c.Fill, c.Sealed = r.Pipeline.Cache.Fill, r.Pipeline.Cache.Sealed
	}
	return nil
}

// startCat starts `lsiofs cat` with its stdout at out.
func startCat(self string, args []string, out, log *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(self, append([]string{"cat"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start lsiofs cat: %w", err)
	}
	return cmd, nil
}

// WidenPipe makes a pipe as large as users may, so that writer and reader alternate less often. If
// even that is refused, the pipe stays as it is.
func WidenPipe(f *os.File) {
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, readBytes) })
}

// AnonBytes returns the size of a process's private memory.
func AnonBytes(pid int) (int64, error) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(FieldOf(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"), " kB"), 10, 64)
	return kib << 10, err
}
