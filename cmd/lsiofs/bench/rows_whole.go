package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
)

// decoder returns the command that decodes the shards named by further arguments to stdout.
func (s *session) decoder() []string {
	switch s.scope.codec {
	case "":
		return []string{"cat", "--"}
	case "zstd":
		return []string{"zstd", "-dcq", "--"}
	case lc0.Game{}.Name():
		return []string{"gzip", "-dcq", "--"}
	case lc0.Tar{}.Name():
		return []string{"sh", "-c", `for f; do tar -xOf "$f"; done | gzip -dcq`, "sh"}
	}
	return []string{s.scope.codec, "-dcq", "--"}
}

func (s *session) decoderText() string {
	d := s.decoder()
	text := strings.Join(d[:len(d)-1], " ")
	if d[0] == "sh" {
		text = "tar -xO | gzip -dc"
	}
	return fmt.Sprintf("%s of all shards, %d processes", text, runtime.GOMAXPROCS(0))
}

// mostTogether is the number of shards decoded by one process, so that its start has little weight
// if they are small.
const mostTogether = 256

// measureDecode decodes all shards with the codec's own program, in as many processes as there are
// cores, and discards the output.
func (s *session) measureDecode(ctx context.Context) (reading, error) {
	command := s.decoder()
	if _, err := exec.LookPath(command[0]); err != nil {
		return reading{}, notMeasured("%w", err)
	}
	shards := make(chan []string)
	var mu sync.Mutex
	var errs []error
	r := reading{bytes: s.scope.streamBytes, mallocs: -1}
	began := monotonic()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for some := range shards {
				used, err := decodeShards(ctx, append(slices.Clip(command), some...))
				mu.Lock()
				r.cpu += used
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	together := min(max(len(s.scope.shards)/(8*runtime.GOMAXPROCS(0)), 1), mostTogether)
	for some := range slices.Chunk(s.scope.shards, together) {
		shards <- some
	}
	close(shards)
	workers.Wait()
	r.elapsed = monotonic() - began
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	return r, errors.Join(errs...)
}

func decodeShards(ctx context.Context, command []string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // its stdout is /dev/null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// measureWhole is measureFromStart with the configured memory.
func (s *session) measureWhole(ctx context.Context) (reading, error) {
	r, err := s.measureFromStart(ctx)
	s.lastWhole = r
	return r, err
}

// measureFromStart measures from the start of a mount, whose index is stored, to the last byte of
// its first epoch.
func (s *session) measureFromStart(ctx context.Context, args ...string) (r reading, err error) {
	if err := touchMemory(ctx, s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	began := monotonic()
	v, err := s.startMount(ctx, append([]string{"--workers", "1"}, args...)...)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	done, err := s.together(ctx, []readJob{s.firstEpoch(v.point)})
	if err != nil {
		return reading{}, err
	}
	used, err := processCPU(v.cmd.Process.Pid)
	if err != nil {
		return reading{}, err
	}
	after, err := v.look(false)
	if err != nil {
		return reading{}, err
	}
	r = joined(done, false)
	r.elapsed = done[0].Ended - began
	r.cpu += used
	r.counted, r.reads, r.readBytes, r.mallocs = true, after.reads, after.readBytes, -1
	return r, nil
}

// measureIndex indexes all shards and stores the index, as the first mount does.
func (s *session) measureIndex(ctx context.Context) (reading, error) {
	dir := filepath.Join(s.dir, "index")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return reading{}, err
	}
	// Nothing is mounted below it.
	defer os.RemoveAll(dir)
	if s.cooled {
		if err := s.warm(ctx); err != nil {
			return reading{}, err
		}
	}
	sp := s.config.Spec
	sp.IndexDir = dir
	used := ownCPU()
	d, err := pipeline.Open(ctx, sp, pipeline.Options{Rebuild: true})
	if err != nil {
		return reading{}, err
	}
	used = ownCPU() - used
	return reading{value: float64(d.Catalog().Records()) / used.Seconds()}, d.Close()
}

// measureResume measures the time from the start of a mount that resumes in the middle of an epoch
// to a reader's first bytes.
func (s *session) measureResume(ctx context.Context) (r reading, err error) {
	path := filepath.Join(s.dir, "resume.json")
	document := fmt.Appendf(nil, `{"epoch": 0, "samples": %d}`, s.scope.records/2)
	if err := os.WriteFile(path, document, 0o600); err != nil {
		return reading{}, err
	}
	defer os.Remove(path)
	began := monotonic()
	v, err := s.startMount(ctx, "--workers", "1", "--epoch", "0", "--resume", path)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	done, err := s.together(ctx, []readJob{{Paths: []string{filepath.Join(v.point, "worker-0"+s.scope.extension)}, PathBytes: 4096}})
	if err != nil {
		return reading{}, err
	}
	return reading{value: float64(done[0].First-began) / 1e6}, nil
}
