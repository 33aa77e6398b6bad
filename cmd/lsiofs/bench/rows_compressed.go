package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/uring"
)

// decoder returns the command that decodes the shards named by further arguments to stdout.
func (s *Session) decoder() []string {
	switch s.Scope.Codec {
	case "":
		return []string{"cat", "--"}
	case "zstd":
		return []string{"zstd", "-dcq", "--"}
	case lc0.Game{}.Name():
		return []string{"gzip", "-dcq", "--"}
	case lc0.Tar{}.Name():
		return []string{"sh", "-c", `for f; do tar -xOf "$f"; done | gzip -dcq`, "sh"}
	}
	return []string{s.Scope.Codec, "-dcq", "--"}
}

func (s *Session) decoderText() string {
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
func (s *Session) measureDecode(ctx context.Context) (Reading, error) {
	command := s.decoder()
	if _, err := exec.LookPath(command[0]); err != nil {
		return Reading{}, NotMeasured("%w", err)
	}
	shards := make(chan []string)
	var mu sync.Mutex
	var errs []error
	r := Reading{Bytes: s.Scope.streamBytes, Mallocs: -1}
	began := Monotonic()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for some := range shards {
				used, err := decodeShards(ctx, append(slices.Clip(command), some...))
				mu.Lock()
				r.CPU += used
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	together := min(max(len(s.Scope.Shards)/(8*runtime.GOMAXPROCS(0)), 1), mostTogether)
	for some := range slices.Chunk(s.Scope.Shards, together) {
		shards <- some
	}
	close(shards)
	workers.Wait()
	r.Elapsed = Monotonic() - began
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
func (s *Session) measureWhole(ctx context.Context) (Reading, error) {
	r, err := s.measureFromStart(ctx)
	s.lastWhole = r
	return r, err
}

// measureFromStart measures from the start of a mount, whose index is stored, to the last byte of
// its first epoch.
func (s *Session) measureFromStart(ctx context.Context, args ...string) (Reading, error) {
	return s.measureFromStartOf(ctx, s.Config.Spec.Dataset, args...)
}

// measureFromStartOf is measureFromStart for another dataset.
func (s *Session) measureFromStartOf(ctx context.Context, dataset string, args ...string) (r Reading, err error) {
	if err := TouchMemory(ctx, s.newProcessBytes()); err != nil {
		return Reading{}, err
	}
	began := Monotonic()
	v, err := s.startMountOf(ctx, dataset, append([]string{"--workers", "1"}, args...)...)
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	done, err := s.together(ctx, []ReadJob{s.firstEpoch(v.Point)})
	if err != nil {
		return Reading{}, err
	}
	used, err := ProcessCPU(v.Cmd.Process.Pid)
	if err != nil {
		return Reading{}, err
	}
	after, err := v.Look(false)
	if err != nil {
		return Reading{}, err
	}
	r = Joined(done, false)
	r.Elapsed = done[0].Ended - began
	r.CPU += used
	r.Counted, r.Reads, r.ReadBytes, r.Mallocs = true, after.reads, after.readBytes, -1
	return r, nil
}

// measureIndex indexes all shards and stores the index, as the first mount does.
func (s *Session) measureIndex(ctx context.Context) (Reading, error) {
	dir := filepath.Join(s.Dir, "index")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return Reading{}, err
	}
	// Nothing is mounted below it.
	defer os.RemoveAll(dir)
	if s.cooled {
		if err := s.warm(ctx); err != nil {
			return Reading{}, err
		}
	}
	sp := s.Config.Spec
	sp.IndexDir = dir
	used := OwnCPU()
	d, err := pipeline.Open(ctx, sp, pipeline.Options{Rebuild: true})
	if err != nil {
		return Reading{}, err
	}
	used = OwnCPU() - used
	return Reading{Value: float64(d.Catalog().Records()) / used.Seconds()}, d.Close()
}

// measureResume measures the time from the start of a mount that resumes in the middle of an epoch
// to a reader's first bytes.
func (s *Session) measureResume(ctx context.Context) (r Reading, err error) {
	path := filepath.Join(s.Dir, "resume.json")
	document := fmt.Appendf(nil, `{"epoch": 0, "samples": %d}`, s.Scope.records/2)
	if err := os.WriteFile(path, document, 0o600); err != nil {
		return Reading{}, err
	}
	defer os.Remove(path)
	began := Monotonic()
	v, err := s.startMount(ctx, "--workers", "1", "--epoch", "0", "--resume", path)
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	done, err := s.together(ctx, []ReadJob{{Paths: []string{filepath.Join(v.Point, "worker-0"+s.Scope.extension)}, PathBytes: 4096}})
	if err != nil {
		return Reading{}, err
	}
	return Reading{Value: float64(done[0].First-began) / 1e6}, nil
}

// decodePartBytes is how much measureDecodeOwn decodes at a time: a chunk.
const decodePartBytes = 256 << 10

// measureDecodeOwn decodes all shards with a mount's decoders, as many at a time as there are
// cores, to memory that is new to this process. A first epoch can't do with less.
func (s *Session) measureDecodeOwn(ctx context.Context) (Reading, error) {
	if err := TouchMemory(ctx, s.newProcessBytes()); err != nil {
		return Reading{}, err
	}
	memory, err := uring.Map(int(s.Scope.allDecoded))
	if err != nil {
		return Reading{}, NotMeasured("%w", err)
	}
	type work struct {
		shard int
		to    []byte
	}
	works := make(chan work)
	var mu sync.Mutex
	var errs []error
	cpu, began := OwnCPU(), Monotonic()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for w := range works {
				err := s.decodeInto(ctx, w.shard, w.to)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	rest := memory
	for i, n := range s.Scope.decodedBytes {
		works <- work{i, rest[:n]}
		rest = rest[n:]
	}
	close(works)
	workers.Wait()
	r := Reading{Bytes: s.Scope.streamBytes, Elapsed: Monotonic() - began, CPU: OwnCPU() - cpu, Mallocs: -1}
	errs = append(errs, uring.Unmap(memory))
	return r, errors.Join(errs...)
}

// decodeInto decodes a shard to memory of its decoded size.
func (s *Session) decodeInto(ctx context.Context, shard int, to []byte) error {
	from, err := s.openDecoded(shard)
	if err != nil {
		return err
	}
	defer from.Close()
	for len(to) > 0 && ctx.Err() == nil {
		n, err := io.ReadFull(from, to[:min(len(to), decodePartBytes)])
		if err != nil {
			return err
		}
		to = to[n:]
	}
	return ctx.Err()
}

// decodedShard reads the decoded bytes of a shard.
type decodedShard struct {
	io.Reader
	file    *os.File
	decoder *format.Decoded // nil if the shard is not compressed
}

func (s *Session) openDecoded(shard int) (*decodedShard, error) {
	file, err := os.Open(s.Scope.Shards[shard])
	if err != nil {
		return nil, err
	}
	d := &decodedShard{Reader: file, file: file}
	codec := s.Scope.codecs[shard]
	if codec == nil {
		return d, nil
	}
	st, err := file.Stat()
	if err == nil {
		d.decoder, err = format.NewDecoded(codec, file, st.Size(), format.Entry{})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	d.Reader = d.decoder
	return d, nil
}

// Close implements io.Closer.
func (d *decodedShard) Close() error {
	if d.decoder != nil {
		d.decoder.Close()
	}
	return d.file.Close()
}

// addPoints adds rows for what is slow with compressed shards: the first byte, a jump, and little
// memory. limit is the row of decoding alone.
func (s *Session) addPoints(l *Measurements, limit string) {
	l.Add(Measurement{ID: RowMountHalf, Name: "mount, --memory half the decoded size, from start to end", Against: limit, Measure: s.measureHalf})
	l.Add(Measurement{ID: RowPlain, Name: "mount of the decoded shards, --memory half of them, per second of processor time", Measure: s.measurePlain})
	l.Add(Measurement{ID: RowKept, Name: "the same of shards that an earlier mount has decoded into the cache", Against: RowPlain, Measure: s.measureKept})
	if s.Scope.Codec != "gzip" {
		return
	}
	l.Add(Measurement{ID: RowFirstByte, Name: "mount to the first byte, counted as the whole epoch", Against: RowDecode, Measure: s.measureFirstByte})
	l.Add(Measurement{ID: RowJump, Name: "jump into the middle of a stream, minus reading there again", Unit: "ms", Measure: s.measureJump})
	l.Add(Measurement{ID: RowPoints, Name: "index entries for places inside compressed members, of the decoded size", Unit: "%", Measure: func(context.Context) (Reading, error) {
		return Reading{Value: 100 * float64(s.Scope.pointBytes) / float64(s.Scope.allDecoded)}, nil
	}})
}

// measureHalf reads the first epoch of a new process that can't hold the dataset.
func (s *Session) measureHalf(ctx context.Context) (Reading, error) {
	return s.measureFromStart(ctx, s.half())
}

// half returns the flag for memory that can't hold the dataset.
func (s *Session) half() string {
	return fmt.Sprintf("--memory=%d", max(s.Scope.allDecoded/2, LeastMemory))
}

const (
	// keptDir contains a decoded copy of the dataset with its index, and a cache.
	keptDir = "kept"
	// mostKeptBytes bounds each of them.
	mostKeptBytes = 4 << 30
)

// measurePlain reads the first epoch of a new process from a decoded copy of the dataset. Its rate
// is per second of processor time.
func (s *Session) measurePlain(ctx context.Context) (Reading, error) {
	if s.Scope.allDecoded > mostKeptBytes {
		return Reading{}, NotMeasured("a copy of the decoded shards takes more than %d GiB", mostKeptBytes>>30)
	}
	if len(s.Scope.Shards) == 0 || s.Scope.Games || s.Scope.Tables {
		return Reading{}, NotMeasured("a copy of the decoded shards would be another dataset")
	}
	if s.plain == "" {
		plain := filepath.Join(s.Dir, keptDir, "plain")
		if err := s.copyDecoded(ctx, plain); err != nil {
			return Reading{}, err
		}
		s.plain = plain
	}
	r, err := s.measureFromStartOf(ctx, s.plain, s.half(), "--index-dir="+filepath.Join(s.Dir, keptDir, "index"))
	return perProcessorTime(r), err
}

// perProcessorTime makes a reading's rate one per second of processor time.
func perProcessorTime(r Reading) Reading {
	r.Elapsed = r.CPU
	return r
}

// copyDecoded writes a dataset's decoded shards, through to the disk.
func (s *Session) copyDecoded(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i, shard := range s.Scope.Shards {
		if err := s.copyShard(ctx, i, filepath.Join(dir, filepath.Base(formats.ParseName(shard).Plain))); err != nil {
			return err
		}
	}
	return nil
}

// copyShard writes the decoded bytes of a shard to a new file.
func (s *Session) copyShard(ctx context.Context, shard int, path string) (err error) {
	from, err := s.openDecoded(shard)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(to, from, decodePartBytes)
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, ctx.Err(), to.Sync())
}

// measureKept is measurePlain of the compressed dataset, whose shards an earlier mount has decoded
// into a cache.
func (s *Session) measureKept(ctx context.Context) (Reading, error) {
	if !s.Program.Caches {
		return Reading{}, NotMeasured("this version has no cache")
	}
	if s.plain == "" {
		return Reading{}, NotMeasured("there is nothing to compare it with")
	}
	cache := filepath.Join(s.Dir, keptDir, "cache")
	args := []string{s.half(), "--cache-dir=" + cache, fmt.Sprintf("--cache-size=%d", int64(2*mostKeptBytes)), "--cache-reserve=1MiB"}
	if !s.kept {
		if _, err := s.measureFromStart(ctx, args...); err != nil {
			return Reading{}, err
		}
		dir, err := os.Open(cache)
		if err != nil {
			return Reading{}, err
		}
		defer dir.Close()
		if err := unix.Syncfs(int(dir.Fd())); err != nil {
			return Reading{}, err
		}
		s.kept = true
	}
	r, err := s.measureFromStart(ctx, args...)
	return perProcessorTime(r), err
}

// measureFirstByte measures from the start of a mount to the first bytes of a shuffled epoch.
func (s *Session) measureFirstByte(ctx context.Context) (r Reading, err error) {
	began := Monotonic()
	v, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	j := s.firstEpoch(v.Point)
	j.PathBytes = 4096
	done, err := s.together(ctx, []ReadJob{j})
	if err != nil {
		return Reading{}, err
	}
	return Reading{Bytes: s.Scope.streamBytes, Elapsed: done[0].First - began, Mallocs: -1}, nil
}

// jumpBytes is the size of the single request after a jump.
const jumpBytes = 4096

// measureJump reads in the middle of an epoch of which only the first bytes have been read, and
// then the same bytes again.
func (s *Session) measureJump(ctx context.Context) (r Reading, err error) {
	v, err := s.startMount(ctx, "--workers", "1")
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	file, err := os.Open(filepath.Join(v.Point, "epoch-0", "worker-0-of-1"+s.Scope.extension))
	if err != nil {
		return Reading{}, err
	}
	defer file.Close()
	p := make([]byte, jumpBytes)
	if _, err := file.ReadAt(p, 0); err != nil {
		return Reading{}, err
	}
	var took [2]float64
	for i := range took {
		began := Monotonic()
		if _, err := file.ReadAt(p, s.Scope.streamBytes/2); err != nil {
			return Reading{}, err
		}
		took[i] = float64(Monotonic()-began) / 1e6
	}
	return Reading{Value: max(took[0]-took[1], 0)}, nil
}

const (
	// tensorsExtension is the extension of streams of tensors.
	tensorsExtension = ".npy"
	// tensorsReaders is the number of concurrent readers of decoded games.
	tensorsReaders = 2
)

// addTensors adds the rows for games whose streams are tensors. What they read is counted in
// bytes of the original frames, so that records and ratios refer to frames.
func (s *Session) addTensors(l *Measurements) {
	if !s.Scope.Games {
		return
	}
	l.Add(Measurement{ID: RowTensorsEpoch, Name: "mount --as tensors, first epoch of a process", Against: RowMountEpoch, Measure: s.measureTensorsEpoch})
	l.Add(Measurement{ID: RowTensorsHot, Name: fmt.Sprintf("mount --as tensors, decoded games, %s", readersText(tensorsReaders)), Measure: s.measureTensorsHot})
}

// asTensors returns the flags of such a mount, and the size of a row.
func asTensors() (flags []string, rowBytes int, err error) {
	t, err := lc0.NewTensors(lc0.Element(spec.AsTensorsU1.Element()))
	return []string{"--workers", "1", "--as", string(spec.AsTensorsU1)}, t.RowBytes(), err
}

// inFrames converts a reading in bytes of rows to bytes of frames.
func (s *Session) inFrames(r Reading, rowBytes int) Reading {
	r.Bytes = int64(float64(r.Bytes) / float64(rowBytes) * s.Scope.recordBytes)
	return r
}

// measureTensorsEpoch is measureFirst with tensors.
func (s *Session) measureTensorsEpoch(ctx context.Context) (r Reading, err error) {
	flags, rowBytes, err := asTensors()
	if err != nil {
		return Reading{}, err
	}
	if err := TouchMemory(ctx, s.newProcessBytes()); err != nil {
		return Reading{}, err
	}
	v, err := s.startMount(ctx, flags...)
	if err != nil {
		return Reading{}, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	r, err = s.ReadMount(ctx, v, []ReadJob{{Paths: []string{fmt.Sprintf("%s/epoch-0/worker-0-of-1%s", v.Point, tensorsExtension)}, StopAfter: s.epochTime()}})
	return s.inFrames(r, rowBytes), err
}

// measureTensorsHot reads from a mount with as many games as its memory holds decoded.
func (s *Session) measureTensorsHot(ctx context.Context) (Reading, error) {
	flags, rowBytes, err := asTensors()
	if err != nil {
		return Reading{}, err
	}
	if s.tensors == nil {
		part := min(float64(s.Config.Spec.MemoryBytes)/2/float64(s.Scope.allDecoded), 1)
		if s.Config.Spec.Order.Split.Part.Whole() && part < 1 {
			flags = append(flags, "--split", fmt.Sprintf("0..%.4f", max(part, 0.0001)))
		}
		if s.tensors, err = s.startMount(ctx, flags...); err != nil {
			return Reading{}, err
		}
		s.Servers = append(s.Servers, s.tensors)
	}
	if s.warming { // this decodes everything
		if _, err := s.ReadMount(ctx, s.tensors, s.JobsOf(s.tensors.Point, tensorsExtension, 1, 0)); err != nil {
			return Reading{}, err
		}
	}
	r, err := s.ReadMount(ctx, s.tensors, s.JobsOf(s.tensors.Point, tensorsExtension, tensorsReaders, s.Slot))
	return s.inFrames(r, rowBytes), err
}
