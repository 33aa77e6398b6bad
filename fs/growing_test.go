package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	growth "github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	runs "github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// patterns are snapshots, each of which has the shards in one directory that match a pattern.
type patterns struct {
	list []string // by epoch: what follows the directory

	mu     sync.Mutex
	config catalog.Config
	taken  int
	gone   map[uint64]bool
}

func (p *patterns) Open(ctx context.Context, c catalog.Config) error {
	p.config, p.taken = c, 1
	first, err := p.catalog(ctx, 0)
	if err != nil {
		return err
	}
	return first.Close()
}

func (p *patterns) catalog(ctx context.Context, epoch uint64) (*catalog.Catalog, error) {
	c := p.config
	c.Dataset = filepath.Join(c.Dataset, p.list[epoch])
	return catalog.Open(ctx, c)
}

func (p *patterns) Latest() (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint64(p.taken - 1), true
}

func (p *patterns) latest() uint64 {
	epoch, _ := p.Latest()
	return epoch
}

func (p *patterns) Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, runs.Epoch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone[epoch]:
		return nil, runs.Epoch{}, fmt.Errorf("the snapshot of epoch %d: %w", epoch, runs.ErrGone)
	case epoch > uint64(p.taken):
		return nil, runs.Epoch{}, &growth.NoEpochError{Epoch: epoch, At: fmt.Sprintf("this run is at %d", p.taken-1)}
	case epoch == uint64(p.taken) && (!take || p.taken == len(p.list)):
		return nil, runs.Epoch{}, &growth.NotYetError{Epoch: epoch, Have: 3, Needed: growth.Amount{N: 5, Measure: "records"}}
	}
	p.taken = max(p.taken, int(epoch)+1)
	c, err := p.catalog(ctx, epoch)
	if err != nil {
		return nil, runs.Epoch{}, err
	}
	return c, runs.Epoch{Epoch: epoch, Snapshot: c.Fingerprint()}, nil
}

func (p *patterns) CanTake(_ context.Context, epoch uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case epoch < uint64(p.taken):
		return nil
	case epoch > uint64(p.taken):
		return &growth.NoEpochError{Epoch: epoch, At: fmt.Sprintf("this run is at %d", p.taken-1)}
	case p.taken == len(p.list):
		return &growth.NotYetError{Epoch: epoch, Have: 3, Needed: growth.Amount{N: 5, Measure: "records"}}
	}
	return nil
}

func (p *patterns) Run() string { return strings.Repeat("3f", 16) }

// Growing returns the status of a run that waits for records, with a warning about too frequent
// use.
func (p *patterns) Growing() snapshot.Status {
	latest, _ := p.Latest()
	uses := 4.5
	return snapshot.Status{
		Run: p.Run(), Epoch: &latest, Snapshot: strings.Repeat("8f", 32), Taken: "2026-11-21T22:28:47Z", By: "node3/4711", Window: "500000units", Watch: "inotify",
		NewRecords: 3, NewUnits: 2, NeededRecords: 5, NextEpoch: fmt.Sprintf("epoch %d is not available yet: 3 of 5 new records", latest+1),
		UsesPerRecord: &uses, Warning: "a record is used 4.5 times: raise --min-new", Settling: 1, PassedOver: 2, Overflows: 6, LastScanSeconds: 0.25,
		WaitingShards: 1, Waiting: []snapshot.Waiting{{Path: "broken.txt", Reason: "it ends in the middle of a line"}}, NewestShard: "d.txt", Shards: 4,
	}
}

func (p *patterns) Close() error { return nil }

// shell is a mount of a growing dataset that is accessed with shell commands.
type shell struct {
	t   *testing.T
	dir string
	p   *patterns
	d   *pipeline.Dataset
}

// mountGrowing mounts shards a … d of lines that begin with their letter; epoch E has the E-th
// pair.
func mountGrowing(t *testing.T, change ...func(*Config)) *shell {
	t.Helper()
	needFUSE(t)
	data := t.TempDir()
	for _, shard := range "abcd" {
		var b strings.Builder
		for i := range 200 + int(shard) {
			fmt.Fprintf(&b, "%c%d\n", shard, i)
		}
		require.NoError(t, os.WriteFile(filepath.Join(data, string(shard)+".txt"), []byte(b.String()), 0o644))
	}
	s := spec.Default()
	s.Dataset, s.IndexDir, s.Deal.Workers, s.Order.SizeRecords = data, t.TempDir(), 2, 100
	s.Format.Name = "lines"
	p := &patterns{list: []string{"{a,b}.txt", "{b,c}.txt", "{c,d}.txt"}}
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{Snapshots: p})
	require.NoError(t, err)
	c := Config{Dataset: d, Rings: ringed, MountPoint: newPoint(t), Version: "v0-test", Log: discard}
	for _, ch := range change {
		ch(&c)
	}
	m, err := New(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		require.NoError(t, m.Unmount(ctx))
		require.NoError(t, m.Wait())
		require.NoError(t, d.Close())
	})
	return &shell{t, m.MountPoint(), p, d}
}

// try runs a command in the mount.
func (s *shell) try(command string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	// The shell itself changes to the directory: a process that forks waits until the child has
	// started its program, and this process also serves the mount.
	c := exec.CommandContext(ctx, "bash", "-c", `cd "$0" || exit 9; `+command, s.dir)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (s *shell) must(command string) string {
	s.t.Helper()
	out, err := s.try(command)
	require.NoError(s.t, err, "%s: %s", command, out)
	return out
}

// letters returns the shards that lines are from.
func letters(lines string) string {
	var found []string
	for _, l := range "abcd" {
		if strings.Contains("\n"+lines, "\n"+string(l)) {
			found = append(found, string(l))
		}
	}
	return strings.Join(found, "")
}

func TestEpochsOfGrowingMount(t *testing.T) {
	s := mountGrowing(t)
	require.Equal(t, "ab", letters(s.must("cat worker-*.txt")))
	require.Equal(t, "ab", letters(s.must("cat epoch-0/worker-0-of-1.txt")))
	require.Equal(t, "bc", letters(s.must("cat epoch-1/worker-0-of-1.txt")), "it is taken by that")
	require.Equal(t, "cd", letters(s.must("cat epoch-2/from-100/worker-0-of-1.txt")), "likewise")
	out, err := s.try("cat epoch-3/worker-0-of-1.txt")
	require.Error(t, err)
	require.Contains(t, out, "No such file", "it is not there yet")
	out, err = s.try("stat epoch-4")
	require.Error(t, err)
	require.Contains(t, out, "No such file")
	require.Equal(t, "ab", letters(s.must("cat worker-*.txt")), "the worker files are of the same epoch still")
	s.must("stat epoch-3")

	var whole struct {
		Fingerprint string `json:"fingerprint"`
		Records     int    `json:"records"`
	}
	for epoch, shards := range []string{"ab", "bc", "cd"} {
		require.NoError(t, json.Unmarshal([]byte(s.must(fmt.Sprintf("cat epoch-%d/dataset.json", epoch))), &whole))
		require.Equal(t, 400+int(shards[0])+int(shards[1]), whole.Records)
		want, err := s.d.EpochFingerprint(t.Context(), uint64(epoch))
		require.NoError(t, err)
		require.Equal(t, want, whole.Fingerprint)
	}
}

// Programs that walk the tree, or list what they find, never start an epoch.
func TestListingNeverStartsEpoch(t *testing.T) {
	s := mountGrowing(t)
	for _, command := range []string{"ls -lR", "ls -lR", "find . -type f -size +0", "du -a", "ls -l epoch-1", "find epoch-1", "du epoch-1", "stat epoch-1", "test -d epoch-1", "ls epoch-*"} {
		out := s.must(command)
		require.Zero(t, s.p.latest(), "%s took one: %s", command, out)
	}
	require.NotContains(t, s.must("ls"), "epoch-1")
	require.Contains(t, s.must("ls"), "epoch-0")
	require.Contains(t, s.must("ls epoch-0"), "worker-0-of-2.txt")
}

// stat of a file of the next epoch finds an empty file if the epoch could start, and never starts
// it.
func TestStatOfFileInNextEpochDoesNotStartIt(t *testing.T) {
	s := mountGrowing(t)
	for _, file := range []string{"worker-0-of-1.txt", "worker-2-of-3.ids", "dataset.json", "from-5/worker-0-of-1.txt", "from-5/checkpoint", "from-0/worker-0-of-1.offsets"} {
		for _, command := range []string{"stat -c %s", "test -e", "test -r", "ls -l", "find", "du -a", "readlink -e", "! compgen -f", "python3 -c 'import os, sys; assert os.path.exists(sys.argv[1]) and not os.path.getsize(sys.argv[1])'"} {
			out := s.must(command + " epoch-1/" + file)
			require.Zero(t, s.p.latest(), "%s %s took one: %s", command, file, out)
		}
		require.Equal(t, "0\n", s.must("stat -c %s epoch-1/"+file))
		_, err := s.try("test -s epoch-1/" + file)
		require.Error(t, err)
		_, err = s.try("true > epoch-1/" + file)
		require.Error(t, err, "it can't be written")
		require.Zero(t, s.p.latest())
	}
	for _, file := range []string{"worker-1-of-1.txt", "worker-0.txt", "checkpoint", "from-05", "from-5/dataset.json", "from-5/from-5", "other"} {
		_, err := s.try("stat epoch-1/" + file)
		require.Error(t, err, file)
	}
	s.must("cd epoch-1/from-5; ls; cd ..; ls")
	require.Zero(t, s.p.latest())
}

// Opening a file of the next epoch, in any way, starts it, and reads the file itself.
func TestOpeningFileInNextEpochStartsIt(t *testing.T) {
	for name, command := range map[string]string{
		"cat":              "cat epoch-1/worker-0-of-1.txt",
		"a look first":     "stat epoch-1/worker-0-of-1.txt >/dev/null; cat epoch-1/worker-0-of-1.txt",
		"cp":               `cp epoch-1/worker-0-of-1.txt "$TMP/a" && cat "$TMP/a"`,
		"cp after a look":  `test -e epoch-1/worker-0-of-1.txt && cp epoch-1/worker-0-of-1.txt "$TMP/a" && cat "$TMP/a"`,
		"another position": "cat epoch-1/from-0/worker-0-of-1.txt",
		"in its directory": "cd epoch-1; cat worker-0-of-1.txt",
		"sendfile": `python3 -c 'import os; f = os.open("epoch-1/worker-0-of-1.txt", os.O_RDONLY)
out = os.open(os.environ["TMP"] + "/a", os.O_CREAT | os.O_WRONLY)
while os.sendfile(out, f, None, 1 << 20): pass' && cat "$TMP/a"`,
		"mmap":                         `python3 -c 'import mmap, os, sys; f = open("epoch-1/worker-0-of-1.txt", "rb"); sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))'`,
		"the checkpoint of a position": "cat epoch-1/from-5/checkpoint >/dev/null; cat epoch-1/worker-0-of-1.txt",
	} {
		t.Run(name, func(t *testing.T) {
			s := mountGrowing(t)
			before := s.must("stat -c %i epoch-1/worker-0-of-1.txt")
			got := s.must("TMP=" + t.TempDir() + "; export TMP; " + command)
			require.EqualValues(t, 1, s.p.latest())
			require.Equal(t, "bc", letters(got))
			require.Equal(t, s.must("cat epoch-1/worker-0-of-1.txt"), got)
			require.Equal(t, fmt.Sprintln(len(got)), s.must("stat -c %s epoch-1/worker-0-of-1.txt"))
			require.Equal(t, before, s.must("stat -c %i epoch-1/worker-0-of-1.txt"))
		})
	}
}

// The directory of a position was a guess if the next epoch turns out not to have it.
func TestPositionMissingFromNextEpoch(t *testing.T) {
	s := mountGrowing(t)
	_, err := s.try("cat epoch-1/from-1000000/worker-0-of-1.txt")
	require.Error(t, err)
	require.EqualValues(t, 1, s.p.latest())
	out, err := s.try("stat epoch-1/from-1000000")
	require.Error(t, err)
	require.Contains(t, out, "No such file")
}

// Users that may only read start no epoch, by any name: it does not exist until the owner, root or
// a user of --readers has started it, and then it does.
func TestOnlookersStartNoEpoch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	for name, c := range map[string]struct {
		readers Readers
		takes   bool
	}{"an onlooker": {Readers{}, false}, "a reader by number": {Readers{Users: []uint32{65534}}, true}, "all": {Readers{All: true}, true}} {
		t.Run(name, func(t *testing.T) {
			s := mountGrowing(t, func(x *Config) { x.AllowOther, x.Readers = true, c.readers })
			for _, file := range []string{"worker-0-of-1.txt", "worker-0-of-3.ids", "from-5/worker-0-of-1.txt", "dataset.json"} {
				out, err := asNobody(t, `cat "$0/epoch-1/`+file+`" | head -c 1`, s.dir)
				require.NoError(t, err)
				if c.takes {
					require.NotContains(t, out, "No such file", file)
					continue
				}
				require.Contains(t, out, "No such file", file)
				require.Zero(t, s.p.latest(), file)
			}
			out, err := asNobody(t, `cat "$0/epoch-0/worker-0-of-1.txt" "$0/worker-0.txt"`, s.dir)
			require.NoError(t, err, out)
			require.Equal(t, "ab", letters(out), "what is there is read")
			require.Equal(t, "bc", letters(s.must("cat epoch-1/worker-0-of-1.txt")), "the owner takes it")
			out, err = asNobody(t, `cat "$0/epoch-1/worker-0-of-1.txt" "$0/epoch-1/from-5/worker-0-of-1.txt"`, s.dir)
			require.NoError(t, err, out)
			require.Equal(t, "bc", letters(out), "then it is there for all")
		})
	}
}

// Writing the next epoch to the checkpoint starts it. Handles of the one before remain valid below
// epoch-N, and end in the root.
func TestGrowingMountAdvancesToNextEpoch(t *testing.T) {
	s := mountGrowing(t)
	before := s.must("stat -c %i dataset.json README checkpoint")
	saved := s.must("cat checkpoint")
	require.Contains(t, saved, `"run": "`+s.p.Run()+`"`)
	out := s.must(`exec 3< epoch-0/worker-0-of-1.txt 4< worker-0.txt; head -c 9 <&3 >/dev/null; head -c 9 <&4 >/dev/null
		echo '{"epoch": 1}' > checkpoint || exit 1
		cat <&3; cat <&4 2>/dev/null && exit 2; true`)
	require.Equal(t, "ab", letters(out[strings.IndexByte(out, '\n')+1:]))
	require.Equal(t, "bc", letters(s.must("cat worker-*.txt")))
	after := s.must("stat -c %i dataset.json README checkpoint")
	for i, was := range strings.Fields(before) {
		require.NotEqual(t, was, strings.Fields(after)[i], "it is another file")
	}
	require.Equal(t, s.must("cat epoch-1/dataset.json"), s.must("cat dataset.json"))
	require.Contains(t, s.must("cat README"), fmt.Sprint(400+'b'+'c'))
	require.Contains(t, s.must("cat status.json"), `"growing"`)
	require.NotContains(t, s.must("ls"), "epoch-0")

	out, err := s.try(`echo '{"epoch": 3}' > checkpoint`)
	require.Error(t, err)
	require.Contains(t, s.must("cat status"), "epoch 3 does not exist: this run is at 1", out)
	s.must(`echo '{"epoch": 2, "samples": 50}' > checkpoint`)
	require.Equal(t, "cd", letters(s.must("cat worker-*.txt")))
	out, err = s.try(`echo '{"epoch": 3}' > checkpoint`)
	require.Error(t, err)
	require.Contains(t, out, "Device or resource busy")
	require.Contains(t, s.must("cat status"), "epoch 3 is not available yet: 3 of 5 new records")
	require.Equal(t, "cd", letters(s.must("cat worker-*.txt")), "nothing has changed")

	file := filepath.Join(t.TempDir(), "saved.json")
	require.NoError(t, os.WriteFile(file, []byte(saved), 0o600))
	s.must("cp " + file + " checkpoint")
	require.Equal(t, "ab", letters(s.must("cat worker-*.txt")), "back in the first epoch")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(saved, "3f3f", "0000", 1)), 0o600))
	_, err = s.try("cp " + file + " checkpoint")
	require.Error(t, err)
	require.Contains(t, s.must("cat status"), "name its run directory with --run")
}

// An epoch whose snapshot is no longer kept is an error that reports this, until the snapshot is
// back.
func TestEpochWithoutSnapshotIsAnError(t *testing.T) {
	s := mountGrowing(t)
	s.must("cat epoch-1/worker-0-of-1.txt epoch-2/worker-0-of-1.txt > /dev/null")
	s.p.mu.Lock()
	s.p.gone, s.p.taken = map[uint64]bool{3: true}, 4
	s.p.mu.Unlock()
	out, err := s.try("cat epoch-3/worker-0-of-1.txt")
	require.Error(t, err)
	require.Contains(t, out, "Input/output error")
	require.Contains(t, s.must("cat status"), "the snapshot of epoch 3: it is no longer kept")
}

// The error of a read from a changed shard gives the right advice: a mount of that epoch would lack
// the shard.
func TestErrorNamesChangedShardOfGrowingMountWithAdvice(t *testing.T) {
	s := mountGrowing(t)
	s.must(fmt.Sprintf("echo more >> '%s/a.txt'", s.d.Spec().Dataset))
	_, err := s.try("cat epoch-0/worker-0-of-1.txt")
	require.Error(t, err)
	status := s.must("cat status")
	require.Contains(t, status, "changed since it was indexed: continue with the next epoch (lsiofs next)")
	require.NotContains(t, status, "mount again")
	require.Contains(t, s.must("cat status.json"), `"object": "a.txt"`)
}
