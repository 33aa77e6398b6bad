package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// withCodec returns a small dataset of a format, compressed as the ending says.
func withCodec(t *testing.T, format, ending string) dataset {
	t.Helper()
	at := slices.IndexFunc(codecs, func(c codec) bool { return c.ext == ending })
	require.GreaterOrEqual(t, at, 0, ending)
	return makeDataset(t, formatNamed(format), codecs[at], 4, 7)
}

// compressions are datasets that are read in different ways.
var compressions = []struct{ format, ending string }{{"tar", ""}, {"tar", ".gz"}, {"jsonl", ".zst"}, {"tfrecord", ""}}

// fiveOrders returns every shuffle, and one whose lanes are in groups.
func fiveOrders() []settings {
	grouped := usual()
	grouped.Groups, grouped.Batch = 2, 3
	return append(everyShuffle(), grouped)
}

// Every order of a directory, a bucket and a web server equals the reference's. An epoch that
// begins in the first one resumes in the second, and ends in the third, each time with another
// number of workers.
func TestEveryOrderIsSameForAnyDatasetLocation(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range compressions {
		t.Run(c.format+c.ending, func(t *testing.T) {
			d := withCodec(t, c.format, c.ending)
			ref := newReference(t, d)
			here, bucket, web := places(t, d)
			all := []place{here, bucket, web}
			for i, s := range fiveOrders() {
				t.Run(fmt.Sprint(i, " ", s.Shuffle), func(t *testing.T) {
					for _, p := range all {
						w := s.Workers - 1
						args := append([]string{"cat", p.dir, "--epoch", fmt.Sprint(s.Epoch), "--worker", fmt.Sprintf("%d/%d", w, s.Workers)}, withoutWorkers(s.flags())...)
						requireSameBytes(t, ref.data(s, w), toolOK(t, args...), "cat of %s", p.shown)
					}
					requireEpochMoves(t, d, ref, s, append(all[i%3:], all[:i%3]...))
				})
			}
		})
	}
}

// requireEpochMoves reads an epoch in successive mounts, one for each place, the last one to the
// end.
func requireEpochMoves(t *testing.T, d dataset, ref *reference, s settings, all []place) {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "checkpoint.json")
	var came [][]string
	var done []taken
	var resume []string
	for i, p := range all {
		s.Workers = 1 + (s.Workers+i)%3
		m := mountDataset(t, p.dataset, s, resume...)
		for w := range s.Workers {
			want := splitIDs(ref.ask(question{settings: s, Worker: w, Done: done, Kind: "ids"}))
			n := len(want)
			if i < len(all)-1 {
				n /= 3
			}
			requireSameIDs(t, want[:n], m.take(d, w, n), "worker %d on %s", w, p.shown)
			came = append(came, want[:n])
			if i == len(all)-1 {
				requireSameBytes(t, ref.ask(question{settings: s, Worker: w, Done: done, Kind: "data"}), m.read("worker-%d%s", w, d.ext), "the rest on %s", p.shown)
			}
		}
		done = m.checkpoint().Done
		shell(t, `cp "$1" "$2"`, m.path("checkpoint"), saved)
		resume = []string{"--resume", saved}
		m.end()
	}
	requireTiles(t, ref.g(s), came...)
}

// howItIsRead are flags that do not affect any byte. A flag that the program does not have is an
// error in the table.
var howItIsRead = [][]string{
	{"--connections", "1"},
	{"--connections", "4", "--memory", "1MiB"},
	{"--read", "scan"},
	{"--read", "gather"},
	{"--read-timeout", "2m"},
	{"--hedge", "off"},
	{"--lookahead", "1MiB"},
	{"--cache-size", "off"},
	{"--cache-size", "64KiB"},
	{"--cache-size", "64MiB", "--lookahead", "64KiB"},
}

// Bytes do not depend on how they are read: the number of concurrent requests, what is cached, and
// the read-ahead.
func TestReadFlagsDoNotChangeBytesOfRemoteDataset(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range compressions[:3] {
		t.Run(c.format+c.ending, func(t *testing.T) {
			_, bucket, web := places(t, withCodec(t, c.format, c.ending))
			for _, p := range []place{bucket, web} {
				args := append([]string{"cat", p.dir}, withoutWorkers(usual().flags())...)
				want := toolOK(t, args...)
				for _, flags := range howItIsRead {
					if c.ending != "" && slices.Contains(flags, "gather") {
						continue // compressed shards are not gathered
					}
					requireSameBytes(t, want, toolOK(t, append(args, flags...)...), "%s with %s", p.shown, strings.Join(flags, " "))
				}
			}
		})
	}
}
