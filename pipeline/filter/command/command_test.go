package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// serve is a filter of the protocol that can fail in several ways.
func serve(how string) {
	switch how {
	case "silent":
		time.Sleep(time.Hour)
	case "other":
		fmt.Print("Usage: filter FILE")
		return
	case "absent":
		fmt.Fprintln(os.Stderr, "no model")
		os.Exit(7)
	}
	var hello [8]byte
	_, _ = io.ReadFull(os.Stdin, hello[:])
	fmt.Print(Hello)
	for n := 0; ; n++ {
		var size [8]byte
		if _, err := io.ReadFull(os.Stdin, size[:4]); err != nil {
			break
		}
		_, _ = io.CopyN(io.Discard, os.Stdin, int64(size[0])|int64(size[1])<<8)
		_, _ = io.ReadFull(os.Stdin, size[:])
		m := int64(size[0]) | int64(size[1])<<8 | int64(size[2])<<16 | int64(size[3])<<24
		if n == 1 {
			switch how {
			case "dies":
				fmt.Fprintln(os.Stderr, "out of memory")
				os.Exit(9)
			case "hangs":
				time.Sleep(time.Hour)
			case "garbage":
				fmt.Print("0123456789")
				continue
			case "long":
				fmt.Print("\x00\xff\xff\xff\xff\xff\xff\xff\x7f")
				continue
			}
		}
		// It answers while it reads: with more data than a pipe holds, a writer that writes
		// everything before it reads would block.
		fmt.Printf("\x00%s", size[:])
		_, _ = io.CopyN(os.Stdout, os.Stdin, m)
	}
	switch how {
	case "more":
		fmt.Print("and more")
	case "badly":
		os.Exit(3)
	}
}

// said collects the output of programs.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) say(about, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, about+": "+line)
}

const limit = time.Minute

func program(t *testing.T, timeout time.Duration, argv ...string) (*Program, *said) {
	s := &said{}
	p, err := Find(argv, timeout, s.say)
	require.NoError(t, err)
	return p, s
}

func TestServersAnswerUnitsInOrder(t *testing.T) {
	p, _ := program(t, limit, os.Args[0], "serve", "well")
	s, err := p.Serve(context.Background(), "shard")
	require.NoError(t, err)
	for _, n := range []int{0, 1, 1000, 3 << 20} {
		data := []byte(strings.Repeat("x", n))
		reply, err := s.Ask(context.Background(), "shard", "unit", data, 4<<20)
		require.NoError(t, err)
		require.Equal(t, ReplyBytes, reply.Status)
		require.Equal(t, string(data), string(reply.Body))
	}
	require.NoError(t, s.Close(context.Background()))
}

func TestServersThatFailToStart(t *testing.T) {
	for how, want := range map[string]string{
		"other": `its first bytes are "Usage: `, "absent": "exit status 7; its last output was: no model", "silent": "longer than --timeout",
	} {
		timeout := limit
		if how == "silent" {
			timeout = 100 * time.Millisecond
		}
		p, _ := program(t, timeout, os.Args[0], "serve", how)
		_, err := p.Serve(context.Background(), "shard")
		require.ErrorIs(t, err, ErrHandshake)
		require.ErrorContains(t, err, want, how)
	}
}

func TestServersThatFailMidway(t *testing.T) {
	for how, want := range map[string]string{
		"dies": "exit status 9; its last output was: out of memory", "garbage": "does not speak the protocol",
		"hangs": "longer than --timeout", "long": "a reply of 9223372036854775807 bytes, of at most 100",
	} {
		p, _ := program(t, limit, os.Args[0], "serve", how)
		s, err := p.Serve(context.Background(), "shard")
		require.NoError(t, err)
		_, err = s.Ask(context.Background(), "shard", "0", []byte("abc"), 100)
		require.NoError(t, err)
		if how == "hangs" {
			s.timeout = 100 * time.Millisecond
		}
		_, err = s.Ask(context.Background(), "shard", "1", []byte("abc"), 100)
		require.ErrorContains(t, err, want, how)
		s.Kill()
	}
}

func TestServersThatExitAbnormally(t *testing.T) {
	for how, want := range map[string]string{"more": "8 bytes after its last answer", "badly": "exit status 3"} {
		p, _ := program(t, limit, os.Args[0], "serve", how)
		s, err := p.Serve(context.Background(), "shard")
		require.NoError(t, err)
		require.ErrorContains(t, s.Close(context.Background()), want, how)
	}
}

func TestRequestStopsWithItsContext(t *testing.T) {
	p, _ := program(t, time.Hour, os.Args[0], "serve", "hangs")
	s, err := p.Serve(context.Background(), "shard")
	require.NoError(t, err)
	_, err = s.Ask(context.Background(), "shard", "0", nil, 100)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = s.Ask(ctx, "shard", "1", nil, 100)
	require.Equal(t, context.Canceled, err)
	s.Kill()
}

// If a program is killed, its child processes are too; the same if it ends successfully.
func TestWholeProcessGroupExits(t *testing.T) {
	for name, wait := range map[string]string{"killed": "sleep 3600", "ended": "true"} {
		at := filepath.Join(t.TempDir(), "pid")
		p, _ := program(t, limit, "sh", "-c", "trap '' TERM; sleep 3600 & echo $! > "+at+".new; mv "+at+".new "+at+"; "+wait)
		x, err := start(p, p.argv, nil, "shard", true)
		require.NoError(t, err)
		if name == "killed" {
			require.Eventually(t, func() bool { _, err := os.Stat(at); return err == nil }, limit, time.Millisecond)
			x.limit(0)
			require.Equal(t, errTimedOut, x.Wait())
		} else {
			require.NoError(t, x.Wait())
		}
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return dead(pid) }, limit, time.Millisecond, name)
	}
}

// dead reports whether a process has ended, whether it was waited for or not.
func dead(pid int) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func file(t *testing.T, text string) *os.File {
	path := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	f, err := os.Open(path)
	require.NoError(t, err)
	return f
}

func TestPipes(t *testing.T) {
	ctx := context.Background()
	var out strings.Builder
	read := func(r io.Reader) error {
		out.Reset()
		_, err := io.Copy(&out, r)
		return err
	}
	p, s := program(t, limit, "sh", "-c", "echo one >&2; tr a-z A-Z; printf two >&2")
	require.NoError(t, p.Pipe(ctx, "a.txt", file(t, "hello"), read))
	require.Equal(t, "HELLO", out.String())
	require.Equal(t, []string{"a.txt: one", "a.txt: two"}, s.lines)

	p, _ = program(t, limit, "sh", "-c", "echo half; exit 4")
	require.ErrorContains(t, p.Pipe(ctx, "a", file(t, ""), read), "exit status 4")
	p, _ = program(t, limit, "sh", "-c", "kill -9 $$")
	require.ErrorContains(t, p.Pipe(ctx, "a", file(t, ""), read), "signal: killed")
	p, _ = program(t, 100*time.Millisecond, "sleep", "3600")
	require.Equal(t, errTimedOut, p.Pipe(ctx, "a", file(t, ""), read))
	p, _ = program(t, limit, "yes")
	full := errors.New("full")
	require.Equal(t, full, p.Pipe(ctx, "a", file(t, ""), func(r io.Reader) error {
		_, _ = io.CopyN(io.Discard, r, 1<<20)
		return full
	}))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	p, _ = program(t, limit, "sleep", "3600")
	require.Equal(t, context.Canceled, p.Pipe(ended, "a", file(t, ""), read))
}

// Too much output is cut off, and so is a long line.
func TestProgramOutputIsBounded(t *testing.T) {
	p, s := program(t, limit, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; i=0; while [ $i -lt 1000 ]; do echo $i >&2; i=$((i+1)); done")
	require.NoError(t, p.Run(context.Background(), "a", nil))
	require.Len(t, s.lines, maxLines)
	require.LessOrEqual(t, len(s.lines[0]), maxLineBytes+3)
	require.Equal(t, "a: 0", s.lines[1])
	require.Contains(t, s.lines[maxLines-1], "left out")
}

func TestFind(t *testing.T) {
	for _, name := range []string{"no-such-program", "./no-such-program", t.TempDir()} {
		_, err := Find([]string{name}, limit, nil)
		require.ErrorIs(t, err, ErrNotFound, name)
	}
}

// Another argument, other boundaries in the same text, another name or another executable make
// another filter.
func TestFilterChecksum(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "exe")
	sum := func(contents string, argv []string, more ...string) [32]byte {
		require.NoError(t, os.WriteFile(exe, []byte(contents), 0o755))
		p, err := Find(append([]string{exe}, argv...), limit, nil)
		require.NoError(t, err)
		s, err := p.Sum(more...)
		require.NoError(t, err)
		return s
	}
	first := sum("1", []string{"a", "b"}, "name")
	require.Equal(t, first, sum("1", []string{"a", "b"}, "name"))
	for _, other := range [][32]byte{
		sum("2", []string{"a", "b"}, "name"), sum("1", []string{"ab"}, "name"), sum("1", []string{"a", "b"}, "name2"),
		sum("1", []string{"a", "b", "name"}), sum("1", []string{"a"}, "b", "name"),
	} {
		require.NotEqual(t, first, other)
	}
}

// A process that ends may leave another one that holds its stdin and never reads it.
func TestInheritedStdinDoesNotBlock(t *testing.T) {
	// The process left behind must have its own session before the first ends: otherwise it may be
	// killed with its group.
	p, _ := program(t, limit, "sh", "-c", `exec 3<&0
echo $(setsid sh -c 'sleep 600 <&3 >/dev/null 2>&1 & echo $!') >&2
printf LSIOFSF1; exit 3`)
	var held lastSaid
	p.said = held.say
	s, err := p.Serve(context.Background(), "shard")
	require.NoError(t, err)
	_, err = s.Ask(context.Background(), "shard", "unit", make([]byte, 1<<20), 1<<20)
	require.ErrorContains(t, err, "exit status 3")
	s.Kill()
	require.NoError(t, unix.Kill(held.number(t), unix.SIGKILL), "it held the stdin until now")
}

// lastSaid keeps the last line.
type lastSaid struct {
	mu   sync.Mutex
	line string
}

func (l *lastSaid) say(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = line
}

func (l *lastSaid) number(t *testing.T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := strconv.Atoi(l.line)
	require.NoError(t, err)
	return n
}

// A reader that is delayed for longer than the pipes of an ended program may stay open still gets
// their contents, and their end.
func TestPipeContentsAreReadEvenIfLate(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 6000)
	for _, held := range []bool{false, true} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.Write(want)
		require.NoError(t, err)
		if !held {
			require.NoError(t, w.Close())
		}
		require.NoError(t, r.SetReadDeadline(time.Now()))
		p := &Pipe{file: r}
		got, err := io.ReadAll(iotest.OneByteReader(p))
		require.True(t, bytes.Equal(want, got), "%d bytes", len(got))
		if held {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			_, err = w.Write(want)
			require.NoError(t, err)
			_, err = p.Read(make([]byte, 10))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "one who writes for ever is not waited for")
			require.NoError(t, w.Close())
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, p.Close())
		_, err = p.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrClosed)
	}
}
