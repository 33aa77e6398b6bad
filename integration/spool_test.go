package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/read"
)

// bigShards is the number of shards that makeBig makes: together more than ten times the smallest
// memory that lsiofs accepts.
const bigShards = 12

// makeBig makes shards of about 1 MB, each one gzip member, as gzip(1) writes it.
func makeBig(t *testing.T) dataset {
	t.Helper()
	d := dataset{name: "big.gz", dir: t.TempDir(), ext: ".jsonl"}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range bigShards {
		var b []byte
		for line := 0; len(b) < 1<<20; line++ {
			b = fmt.Appendf(b, `{"shard": %d, "line": %d, "text": "`, i, line)
			for range 100 + r.IntN(3000) {
				b = append(b, "abcdefghijklmnop"[r.IntN(16)])
			}
			b = append(b, "\"}\n"...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%02d.jsonl.gz", i)), gzipMember(b), 0o644))
	}
	return d
}

// spoolDir returns a directory on a disk: on many machines /tmp is in memory.
func spoolDir(t *testing.T) string {
	t.Helper()
	for _, base := range []string{os.TempDir(), "/var/tmp"} {
		dir, err := os.MkdirTemp(base, "lsiofs-spool-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		var st unix.Statfs_t
		if require.NoError(t, unix.Statfs(dir, &st)); st.Type != unix.TMPFS_MAGIC {
			return dir
		}
	}
	missing(t, "temporary files lie in memory")
	return ""
}

func (m *mount) fetchStats() read.Stats {
	m.t.Helper()
	var s struct {
		Pipeline struct {
			Fetch read.Stats `json:"fetch"`
		} `json:"pipeline"`
	}
	require.NoError(m.t, json.Unmarshal(m.read("status.json"), &s))
	return s.Pipeline.Fetch
}

// spoolSettings has one worker, so that its file is the epoch.
func spoolSettings(shuffle string) settings {
	s := usual()
	s.Shuffle, s.Workers, s.ChunkBytes, s.ChunkRecords, s.Lanes, s.ShuffleSize = shuffle, 1, 64<<10, 64, 2, 200
	return s
}

func TestCompressedDatasetTenTimesBudgetIsDecodedOncePerEpoch(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := makeBig(t)
	ref := newReference(t, d)
	for _, c := range []struct {
		shuffle string
		most    uint64 // decodes in two epochs
	}{
		{"reservoir", 2*bigShards + 2}, // records not in memory when their shard has to go
		{"full", bigShards},            // the spool has room for all of them
	} {
		t.Run(c.shuffle, func(t *testing.T) {
			s := spoolSettings(c.shuffle)
			spool := spoolDir(t)
			m := mountDataset(t, d, s, "--memory", "1MiB", "--spool-dir", spool)
			for epoch := range uint64(2) {
				s.Epoch = epoch
				requireSameBytes(t, ref.data(s, 0), m.read("epoch-%d/worker-0-of-1.jsonl", epoch), "epoch %d", epoch)
			}
			stats := m.fetchStats()
			require.Equal(t, "spool", stats.Strategy)
			t.Logf("%d shards decoded of %d in two epochs", stats.Spool.Decoded, bigShards)
			require.Contains(t, stats.Reason, "12 compressed shards have few")
			require.NotNil(t, stats.Spool)
			require.GreaterOrEqual(t, stats.Spool.Decoded, uint64(bigShards))
			require.LessOrEqual(t, stats.Spool.Decoded, c.most)
			require.LessOrEqual(t, stats.Spool.UsedBytes, stats.Spool.CapacityBytes)
			text := string(m.read("status"))
			require.Contains(t, text, "spool (12 compressed shards")
			require.Contains(t, text, spool)
			requireEmptyDir(t, spool)
		})
	}
}

func TestEachReadModeGivesSameBytes(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, f := range formats {
		for _, c := range codecs[1:] { // uncompressed shards have only one way
			t.Run(f.name+c.ext, func(t *testing.T) {
				d := makeDataset(t, f, c, 9, *drawSeed)
				ref := newReference(t, d)
				for _, shuffle := range []string{"reservoir", "full"} {
					s := usual()
					s.Shuffle = shuffle
					want := ref.data(s, 1)
					for _, how := range []string{"scan", "spool"} {
						args := append([]string{"cat", d.dir, "--worker", "1", "--memory", "1MiB", "--read", how, "--spool-dir", spoolDir(t)}, d.flags...)
						requireSameBytes(t, want, output(t, lsiofs, append(args, s.flags()...)...), "--shuffle %s --read %s", shuffle, how)
					}
				}
			})
		}
	}
}

func TestNothingRemainsOfSpoolOfKilledMount(t *testing.T) {
	d := makeBig(t)
	spool := spoolDir(t)
	s := spoolSettings("full")
	m := mountDataset(t, d, s, "--memory", "1MiB", "--spool-dir", spool)
	want := m.read("epoch-0/worker-0-of-1.jsonl")
	require.NotNil(t, m.fetchStats().Spool)
	m.kill()
	requireEmptyDir(t, spool)

	m = mountDataset(t, d, s, "--memory", "1MiB", "--spool-dir", spool)
	requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "after a kill")
}

// TestWhatADiskLosesOfTheSpoolIsDecodedAgain uses a disk that accepts everything written, and has
// no room for it at writeback: the kernel drops the pages, and shows zeros in their place.
func TestWhatADiskLosesOfTheSpoolIsDecodedAgain(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := makeBig(t)
	disk := thinDisk(t, 6<<20, 128<<20)
	for _, io := range []string{"uring", "pread"} {
		t.Run(io, func(t *testing.T) {
			s := spoolSettings("full")
			ref := newReference(t, d)
			began := time.Now()
			m := mountDataset(t, d, s, "--memory", "1MiB", "--read", "spool", "--spool-dir", disk, "--io", io)
			for epoch := range uint64(2) {
				s.Epoch = epoch
				requireSameBytes(t, ref.data(s, 0), m.read("epoch-%d/worker-0-of-1.jsonl", epoch), "epoch %d", epoch)
				require.Error(t, m.forgetSpool(disk), "there is less room than the disk promises")
			}
			stats := m.fetchStats()
			require.NotNil(t, stats.Spool)
			require.NotZero(t, stats.Spool.DamagedPieces)
			require.NotZero(t, stats.Spool.DamagedShards)
			require.Zero(t, stats.Errors)
			for _, words := range []string{disk, "pieces were unreadable or corrupt"} {
				require.Contains(t, string(m.read("status")), words)
			}
			for _, words := range []string{disk, "other bytes than were written"} {
				m.requireLog(regexp.QuoteMeta(words))
			}
			require.Regexp(t, `(?m)^lsiofs_spool_damaged_pieces_total [1-9]`, string(m.read("metrics")))
			said, minutes := strings.Count(m.log.String(), "other bytes than were written"), int(time.Since(began)/time.Minute)
			require.LessOrEqual(t, said, 2+minutes, "it is said once a minute at most")
		})
	}
}

// forgetSpool makes the kernel write the server's spool to its disk and drop the pages, as when
// memory is short. It returns the error of writing.
func (m *mount) forgetSpool(disk string) error {
	m.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.cmd.Process.Pid))
	require.NoError(m.t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || !strings.HasPrefix(to, disk+"/") {
			continue
		}
		f, err := os.OpenFile(link, os.O_RDWR, 0)
		require.NoError(m.t, err)
		defer f.Close()
		lost := f.Sync()
		require.NoError(m.t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		return lost
	}
	require.Fail(m.t, "the server has no file in "+disk)
	return nil
}

func TestMountRefusesSpoolWithoutRoom(t *testing.T) {
	d := makeBig(t)
	flags := append(spoolSettings("full").flags(), "--memory", "1MiB", "--spool-dir", spoolDir(t), "--spool-max", "5MiB")
	_, err := tryMount(t, d, t.TempDir(), append(flags, "--read", "spool")...)
	require.ErrorContains(t, err, "exit code 3")
	require.ErrorContains(t, err, "--spool-max (5.0 MiB) is less than the 12 MiB that the order needs")
}

func requireEmptyDir(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
