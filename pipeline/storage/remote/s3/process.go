package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// endGrace is how long a process may take to end after SIGTERM, and its pipes after its end.
	endGrace = 500 * time.Millisecond
	// maxSaidBytes bounds how much of the end of a process's stderr is kept.
	maxSaidBytes = 1 << 10
	// maxKeysBytes bounds its stdout; session tokens have about 2 KiB.
	maxKeysBytes = 1 << 20
)

// process is a credential_process of a profile: a program that prints keys as JSON.
type process struct {
	credentials.Expiry
	command string
	said    said
}

// RetrieveWithCredContext runs the process once. It ends with cc.Context, together with everything
// it has started.
func (p *process) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	words, err := splitWords(p.command)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("credential_process: %w", err)
	}
	out, err := p.run(cc.Context, words)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("credential_process %s: %w%s", words[0], err, p.said.last())
	}
	var keys struct {
		Version                                    int
		AccessKeyID, SecretAccessKey, SessionToken string
		Expiration                                 time.Time
	}
	if json.Unmarshal(out, &keys) != nil { // its text may contain keys
		return credentials.Value{}, fmt.Errorf("credential_process %s: what it printed is not JSON with keys%s", words[0], p.said.last())
	}
	if keys.Version != 1 {
		return credentials.Value{}, fmt.Errorf("credential_process %s: it printed keys of version %d, and 1 is known", words[0], keys.Version)
	}
	if !keys.Expiration.IsZero() {
		p.SetExpiration(keys.Expiration, credentials.DefaultExpiryWindow)
	}
	return credentials.Value{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.SessionToken, Expiration: keys.Expiration}, nil
}

// Retrieve implements credentials.Provider.
func (p *process) Retrieve() (credentials.Value, error) {
	return p.RetrieveWithCredContext(&credentials.CredContext{Context: context.Background()})
}

// run returns what the process prints. If there is a terminal the process may prompt there, for
// example for a code; so it stays in this process's group, which Ctrl-C ends as a whole. Otherwise
// it has a group of its own, which ends with it.
func (p *process) run(ctx context.Context, words []string) ([]byte, error) {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the process ends
	defer runtime.UnlockOSThread()
	p.said.clear()
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	target := func() int { return c.Process.Pid }
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		c.Stdin = os.Stdin
	} else {
		c.SysProcAttr.Setpgid = true
		target = func() int { return -c.Process.Pid }
	}
	c.Cancel = func() error {
		if unix.Kill(target(), unix.SIGTERM) != nil { // it has just ended
			return os.ErrProcessDone
		}
		return nil
	}
	c.WaitDelay = endGrace
	out := &bounded{}
	c.Stdout, c.Stderr = out, &p.said
	err := c.Run()
	if ctx.Err() != nil {
		if c.Process != nil && c.SysProcAttr.Setpgid {
			_ = unix.Kill(target(), unix.SIGKILL) // whatever it started, or did not end on its own; an error means that nothing is left
		}
		return nil, fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended successfully, and something that it started, such as a browser, still has its stdout
	}
	if err == nil && out.full {
		err = fmt.Errorf("it printed more than %d bytes", maxKeysBytes)
	}
	return out.text, err
}

// bounded keeps the beginning of what is written.
type bounded struct {
	text []byte
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := min(len(p), maxKeysBytes-len(b.text))
	b.text = append(b.text, p[:kept]...)
	b.full = b.full || kept < len(p)
	return len(p), nil
}

// said keeps the end of what is written. It is safe for concurrent use.
type said struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*said)(nil)

func (s *said) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = nil
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	s.text = s.text[max(len(s.text)-maxSaidBytes, 0):]
	return len(p), nil
}

// last returns what was written last, as one line to append to another text; "" for nothing.
func (s *said) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.FieldsFunc(string(s.text), func(r rune) bool { return r == '\n' || r == '\r' })
	text := strings.TrimSpace(strings.Join(lines, "; "))
	if text == "" {
		return ""
	}
	return ": it says: " + printable.Line(remote.CleanText(text))
}

// splitWords splits a command into words as a POSIX shell does, with quotes but without expansions.
func splitWords(command string) (words []string, err error) {
	var word strings.Builder
	within, quote := false, rune(0)
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, within = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, within = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if within {
				words = append(words, word.String())
			}
			word.Reset()
			within = false
		default:
			word.WriteRune(r)
			within = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("a quote (%c) in it does not end", quote)
	case escaped:
		return nil, errors.New("it ends in a backslash")
	case within:
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("it names no program")
	}
	return words, nil
}
