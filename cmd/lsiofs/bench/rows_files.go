package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// measureTar makes GNU tar write an archive of all files to a pipe, whose bytes are discarded. (If
// it wrote to /dev/null itself, it would not read the files.)
func (s *session) measureTar(ctx context.Context) (reading, error) {
	if !s.scope.whole {
		return reading{}, notMeasured("the page cache can't hold the files")
	}
	from, to, err := os.Pipe()
	if err != nil {
		return reading{}, err
	}
	defer from.Close()
	widenPipe(to)
	tar := exec.CommandContext(ctx, "tar", "-cf", "-", "-C", s.dataset.Catalog().Root(), ".")
	tar.Stdout = to
	began := monotonic()
	if err := errors.Join(tar.Start(), to.Close()); err != nil {
		return reading{}, notMeasured("%w", err)
	}
	_, rerr := io.Copy(io.Discard, onlyReader{from})
	werr := tar.Wait()
	if ctx.Err() != nil {
		return reading{}, ctx.Err()
	}
	if err := errors.Join(rerr, werr); err != nil {
		return reading{}, fmt.Errorf("%s: %w", strings.Join(tar.Args, " "), err)
	}
	return reading{
		bytes: s.scope.streamBytes, elapsed: monotonic() - began, mallocs: -1,
		cpu: tar.ProcessState.UserTime() + tar.ProcessState.SystemTime(),
	}, nil
}

// onlyReader hides all other methods of a file, so that its bytes are really read.
type onlyReader struct{ io.Reader }

// measureOpened reads from a mount that opens and reads each file, and keeps none.
func (s *session) measureOpened(ctx context.Context) (reading, error) {
	if s.opened == nil {
		m, err := s.startMount(ctx, "--workers", "1", "--read", "gather")
		if err != nil {
			return reading{}, err
		}
		s.opened, s.servers = m, append(s.servers, m)
	}
	return s.readMount(ctx, s.opened, s.jobsOf(s.opened.point, s.scope.extension, 1, s.slot))
}

// warmFiles fills the page cache with the files of a dataset of directories.
func (s *session) warmFiles(ctx context.Context) error {
	buffer := make([]byte, 1<<20)
	return filepath.WalkDir(s.dataset.Catalog().Root(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(io.Discard, onlyReader{f}, buffer)
		return errors.Join(err, f.Close(), ctx.Err())
	})
}
