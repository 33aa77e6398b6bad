package integration

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// following is a running lsiofs cat --follow.
type following struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *os.File
	exited <-chan struct{}
}

func follow(g *growing, flags ...string) *following {
	g.t.Helper()
	out, err := os.Create(filepath.Join(g.t.TempDir(), "out"))
	require.NoError(g.t, err)
	f := &following{t: g.t, out: out, cmd: exec.Command(lsiofs, slices.Concat([]string{"cat", g.data.dir}, g.data.flags, []string{"--grow", "--run", g.runDir,
		"--index-dir", g.t.TempDir(), "--settle", "200ms", "--follow"}, flags)...)}
	f.cmd.Env, f.cmd.Stdout, f.cmd.Stderr = environment(g.t.TempDir()), out, serve.NewLog()
	g.t.Cleanup(func() { _ = out.Close() })
	f.exited = launch(g.t, f.cmd)
	return f
}

// written returns the output so far.
func (f *following) written() []byte {
	b, err := os.ReadFile(f.out.Name())
	require.NoError(f.t, err)
	return b
}

// interrupted ends it as Ctrl-C does, and returns its output.
func (f *following) interrupted() []byte {
	f.t.Helper()
	require.NoError(f.t, f.cmd.Process.Signal(os.Interrupt))
	<-f.exited
	require.Equal(f.t, 130, f.cmd.ProcessState.ExitCode(), "%v", f.cmd.Stderr)
	return f.written()
}

// epochRecord returns an epoch of the run from its file; ok is false if there is none yet.
func (g *growing) epochRecord(epoch int) (r struct {
	Snapshot  string `json:"snapshot"`
	Records   int    `json:"records"`
	Shards    int    `json:"shards"`
	NewShards int    `json:"new_shards"`
}, ok bool) {
	b, err := os.ReadFile(filepath.Join(g.runDir, fmt.Sprintf("epoch-%d", epoch)))
	if err != nil {
		return r, false
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	require.NoError(g.t, json.Unmarshal(line, &r))
	return r, true
}

// comes waits until it starts an epoch.
func (f *following) comes(g *growing, epoch int) {
	f.t.Helper()
	until(f.t, f.exited, func() bool { _, ok := g.epochRecord(epoch); return ok }, "epoch %d: %s", epoch, f.cmd.Stderr)
}

// Without --min-new it waits for a new shard, and does not write the same ones repeatedly.
func TestFollowWaitsForNewShards(t *testing.T) {
	g := newGrowing(t)
	g.arrive()
	f := follow(g)
	f.comes(g, 0)
	until(t, f.exited, func() bool { return len(wholeNames(f.written())) > 0 }, "its first records")
	g.arrive()
	f.comes(g, 1)
	second, _ := g.epochRecord(1)
	require.Equal(t, 1, second.NewShards)
	require.Equal(t, 2, second.Shards)
	f.interrupted()

	f = follow(g, "--min-new", "0")
	f.comes(g, 5) // the same two shards repeatedly
	f.interrupted()
}

// ofKeys replaces the dataset by one shard with these records, of one member each.
func (g *growing) ofKeys(keys ...string) {
	g.t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, key := range keys {
		require.NoError(g.t, w.WriteHeader(&tar.Header{Name: key + ".txt", Size: 1, Mode: 0o644}))
		_, err := w.Write([]byte{byte('a' + i)})
		require.NoError(g.t, err)
	}
	require.NoError(g.t, w.Close())
	require.NoError(g.t, os.WriteFile(filepath.Join(g.data.dir, "one.tar"), b.Bytes(), 0o644))
}

// If an epoch begins with the key with which the previous one ended, its first record gets another
// name: otherwise a reader that groups members by key would take two records for one.
func TestAdjacentRecordsInFollowedStreamHaveDifferentKeys(t *testing.T) {
	for _, keys := range [][]string{{"x"}, {"x", "y"}} {
		g := newGrowing(t)
		g.ofKeys(keys...)
		f := follow(g, "--min-new", "0")
		f.comes(g, 12)
		names := wholeNames(f.interrupted())
		require.Greater(t, len(names), 6)
		for i := 1; i < len(names); i++ {
			require.NotEqual(t, names[i-1], names[i], "%v", names)
		}
		for _, name := range names {
			require.Contains(t, keys, strings.TrimSuffix(strings.TrimPrefix(name, "dup-0/"), ".txt"))
		}
	}
}

// wholeNames returns the members of an archive that may end anywhere.
func wholeNames(b []byte) (names []string) {
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err != nil {
			return names
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return names
		}
		names = append(names, h.Name)
	}
}

// With several workers the progress file counts whole rounds, and --resume from the least of them
// loses no record.
func TestProgressOfSeveralWorkersLosesNothing(t *testing.T) {
	g := newGrowing(t)
	g.arrive()
	s := usual()
	s.Workers = 3
	var all []string
	whole := 0
	for w := range s.Workers {
		progress := filepath.Join(t.TempDir(), "progress.json")
		f := follow(g, slices.Concat(s.flags(), []string{"--worker", fmt.Sprint(w), "--ids", "--progress-file", progress})...)
		f.comes(g, 0)
		record, _ := g.epochRecord(0)
		until(t, f.exited, func() bool {
			b, err := os.ReadFile(progress)
			return err == nil && strings.TrimSpace(string(b)) == fmt.Sprintf(`{"epoch": 0, "samples": %d}`, record.Records)
		}, "all of the epoch")
		all = append(all, splitIDs(f.interrupted())...)
		whole = record.Records
	}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), whole)
}

// Streams that can't be concatenated are refused.
func TestStreamsThatCannotBeFollowedAreRefused(t *testing.T) {
	d := plain(t, "npy", 1)
	run := filepath.Join(t.TempDir(), "run")
	r := tool(t, slices.Concat([]string{"cat", d.dir}, d.flags, []string{"--grow", "--run", run, "--settle", "200ms", "--index-dir", t.TempDir(), "--follow"})...)
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "can't write npy")
	for _, flag := range []string{"--offsets", "--progress-file=x"} {
		r := tool(t, slices.Concat([]string{"cat", d.dir}, d.flags, []string{"--follow", flag})...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, "add --grow")
	}
	r = tool(t, slices.Concat([]string{"cat", d.dir}, d.flags, []string{"--grow", "--follow", "--offsets"})...)
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "--follow can't be combined with --offsets")
}
