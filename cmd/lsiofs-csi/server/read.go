package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxTextBytes bounds a file read from a mount. status.json of a mount with 64 workers has some 30
// KiB.
const maxTextBytes = 16 << 20

// Read reads a small file of the mount, such as status.json. A stopped server can't block the
// caller beyond ctx: the read continues in a goroutine, of which there is at most one, and which
// ends with the server.
func (s *Server) Read(ctx context.Context, name string) ([]byte, error) {
	type answer struct {
		text []byte
		err  error
	}
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the server (process %d) does not answer: %w", s.process.PID, ctx.Err())
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := readBounded(filepath.Join(s.point, name))
		answers <- answer{text, err}
		<-s.reading
	}()
	select {
	case a := <-answers:
		return a.text, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the server (process %d) does not answer: %w", s.process.PID, ctx.Err())
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTextBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxTextBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxTextBytes)
	}
	return text, nil
}
