package diskcache

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// stressVariable makes this test program read a dataset through a cache until it is killed; its
// value is a stressJob as JSON.
const stressVariable = "LSIOFS_TEST_CACHE_STRESS"

type stressJob struct {
	Data, Cache string
	Seed        uint64
	Reads       int // 0: until it is killed
}

const (
	stressObjects = 4
	stressBytes   = 3*mib + 77
)

func stressChild() {
	var job stressJob
	err := json.Unmarshal([]byte(os.Getenv(stressVariable)), &job)
	if err == nil {
		err = job.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run reads, announces and drops at random, and requires the right bytes.
func (job *stressJob) run() error {
	engine, err := uring.Open(uring.ModeAuto)
	if err != nil {
		return err
	}
	below, err := local.Open(job.Data, engine)
	if err != nil {
		return err
	}
	c := DefaultConfig()
	c.Dir, c.Below, c.Engine, c.Identify = job.Cache, below, engine, byPath
	c.BoundBytes, c.ShareBytes, c.MaxFiles = 9*mib, 3*mib, 2
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := Open(c)
	if err != nil {
		return err
	}
	var objects []storage.Object
	err = s.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		objects = append(objects, o)
		return nil
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, 4)
	for thread := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(job.Seed, thread))
			for i := 0; job.Reads == 0 || i < job.Reads; i++ {
				o := objects[r.IntN(len(objects))]
				n := 1 + r.Int64N(min(o.SizeBytes, []int64{5000, 400_000}[r.IntN(2)]))
				off := r.Int64N(o.SizeBytes - n + 1)
				buf := make([]byte, n)
				if err := storage.ReadAt(context.Background(), s, o, buf, off); err != nil {
					failed <- err
					return
				}
				if !bytes.Equal(buf, stressContent(o.Path)[off:off+n]) {
					failed <- fmt.Errorf("wrong bytes of %s at [%d, %d)", o.Path, off, off+n)
					return
				}
				switch r.IntN(10) {
				case 0, 1, 2, 3:
					s.Passed(thread, []storage.Block{{Object: o, OffsetBytes: off, SizeBytes: n}})
				case 4:
					s.Want(thread, []storage.Block{{Object: o, OffsetBytes: off, SizeBytes: n}})
				case 5:
					s.Drop(thread)
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	if state, why := s.health.state(); state != "on" {
		return fmt.Errorf("the cache is %s: %s", state, why)
	}
	if err := s.Close(); err != nil {
		return err
	}
	return engine.Close()
}

var stressContents sync.Map

func stressContent(path string) []byte {
	if b, ok := stressContents.Load(path); ok {
		return b.([]byte)
	}
	b := random(uint64(path[0]), stressBytes)
	stressContents.Store(path, b)
	return b
}

// stressChildOf starts a process.
func stressChildOf(t *testing.T, job stressJob) (*exec.Cmd, *bytes.Buffer) {
	program, err := os.Executable()
	require.NoError(t, err)
	said := &bytes.Buffer{}
	text, err := json.Marshal(job)
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), stressVariable+"="+string(text))
	cmd.Stderr = said
	require.NoError(t, cmd.Start())
	return cmd, said
}

// Three processes read through one directory, and drop what others read. One is killed repeatedly,
// at any point, while pages are punched or flipped and objects removed. No process reads a wrong
// byte, and each still has a working cache at the end.
func TestKilledProcessesShareDirectory(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 10
	}
	w := newWorld(t, nil)
	for i := range stressObjects {
		name := string(rune('a' + i))
		require.NoError(t, os.WriteFile(filepath.Join(w.data, name), stressContent(name), 0o600))
	}
	r := rand.New(rand.NewPCG(1, 2))
	job := stressJob{Data: w.data, Cache: w.cache}
	type process struct {
		cmd  *exec.Cmd
		said *bytes.Buffer
	}
	var last []process
	for i := range uint64(2) {
		job.Seed, job.Reads = 1000+i, 40*kills
		cmd, said := stressChildOf(t, job)
		last = append(last, process{cmd, said})
	}
	d := (*Directory)(nil)
	require.Eventually(t, func() bool {
		var err error
		d, err = OpenDirectory(w.cache, nil)
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	for kill := range kills {
		job.Seed, job.Reads = uint64(kill), 0
		cmd, said := stressChildOf(t, job)
		time.Sleep(time.Duration(10+r.IntN(120)) * time.Millisecond) // anywhere in its life
		if stored, err := filepath.Glob(filepath.Join(w.cache, storeName, "*", "*.*")); err == nil && len(stored) > 0 {
			path := stored[r.IntN(len(stored))]
			if info, err := os.Stat(path); err == nil && info.Size() > 0 {
				switch r.IntN(4) {
				case 0:
					_ = flip(path, r.Int64N(info.Size()))
				case 1:
					_ = punchFile(path, r.Int64N(info.Size())&^4095, 65536)
				case 2:
					_, _ = d.Clean(t.Context(), Which{})
				}
			}
		}
		require.NoError(t, cmd.Process.Kill())
		require.EqualError(t, cmd.Wait(), "signal: killed", "%s", said)
	}
	for _, p := range last {
		require.NoError(t, p.cmd.Wait(), "%s", p.said)
	}
	require.NoError(t, d.Verify(t.Context(), true, func(Checked) error { return nil }))
	require.NoError(t, d.Verify(t.Context(), false, func(c Checked) error {
		require.Zero(t, c.BadPages)
		return nil
	}))
	waitFor(t, func() bool { // locks go with their process, when the kernel has cleaned up
		used := 0
		require.NoError(t, d.List(t.Context(), func(e Entry) error {
			if e.InUse {
				used++
			}
			return nil
		}))
		return used == 0
	})
	require.NoError(t, d.Close())
	job.Seed, job.Reads = 1, 200
	cmd, said := stressChildOf(t, job)
	require.NoError(t, cmd.Wait(), "%s", said)
}
