package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// decoder is the program that decodes a shard to stdout, nil for none.
func decoder(shard string) []string {
	_, codec := formats.Split(shard)
	switch {
	case codec == nil:
		return []string{"cat"}
	case codec.Name() == "zstd":
		return []string{"zstd", "-dcq"}
	}
	return []string{codec.Name(), "-dcq"}
}

func (s *session) decoderText() string {
	return fmt.Sprintf("%s of all shards, %d processes", strings.Join(decoder(s.scope.shards[0]), " "), runtime.GOMAXPROCS(0))
}

// measureDecode decodes all shards with the codec's own program, in as many
// processes as there are cores, to nowhere.
func (s *session) measureDecode(ctx context.Context) (reading, error) {
	if _, err := exec.LookPath(decoder(s.scope.shards[0])[0]); err != nil {
		return reading{}, notMeasured("%w", err)
	}
	shards := make(chan string)
	var mu sync.Mutex
	var errs []error
	r := reading{bytes: s.scope.streamBytes, mallocs: -1}
	began := monotonic()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for shard := range shards {
				used, err := decodeShard(ctx, shard)
				mu.Lock()
				r.cpu += used
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, shard := range s.scope.shards {
		shards <- shard
	}
	close(shards)
	workers.Wait()
	r.elapsed = monotonic() - began
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	return r, errors.Join(errs...)
}

func decodeShard(ctx context.Context, shard string) (time.Duration, error) {
	command := append(decoder(shard), "--", shard)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // its stdout is /dev/null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// measureWhole is from the start of a mount, with its index stored, to the last
// byte of its first epoch.
func (s *session) measureWhole(ctx context.Context) (r reading, err error) {
	if err := touchMemory(s.newProcessBytes()); err != nil {
		return reading{}, err
	}
	began := monotonic()
	v, err := s.startMount(ctx, "--workers", "1")
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
	s.lastWhole = r
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

// measureResume is the time from the start of a mount that goes on in the middle
// of an epoch to the first bytes that a reader has.
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
