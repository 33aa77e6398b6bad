package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// tars returns n shards of different samples.
func tars(n int) map[string][]byte {
	shards := map[string][]byte{}
	for i := range n {
		shards[fmt.Sprintf("%03d.tar", i)] = tarOf(300, fmt.Sprint("s", i, "-"))
	}
	return shards
}

// with returns shards with others added or replacing them.
func with(shards map[string][]byte, others map[string][]byte) map[string][]byte {
	all := maps.Clone(shards)
	maps.Copy(all, others)
	return all
}

// A .tar may hold samples or games, and on a server few are opened to find out. Whatever the
// directory holds, the result is the same as for local files, which are all opened.
func TestFilesWronglyAssumedToBeTarsAreDetected(t *testing.T) {
	games := func() []byte { return gamesOf(gz(gameOf(6, 60)), gz(gameOf(6, 40))) }
	cut := tarOf(300, "c")[:100_000]
	wrong := bytes.Clone(tarOf(300, "w"))
	wrong[512*4+3] ^= 0xff
	gzipped := gamesOf(gz(bytes.Repeat([]byte("no game "), 40_000)), gz([]byte("nor this")))
	for name, shards := range map[string]map[string][]byte{
		"tars":                       tars(8),
		"games":                      {"0.tar": games(), "1.tar": games(), "2.tar": games(), "3.tar": games()},
		"games in the middle":        with(tars(8), map[string][]byte{"004.tar": games()}),
		"games at the beginning":     with(tars(8), map[string][]byte{"000.tar": games()}),
		"games at the end":           with(tars(8), map[string][]byte{"007.tar": games()}),
		"games, a tar first":         with(map[string][]byte{"1.tar": games(), "2.tar": games(), "3.tar": games()}, map[string][]byte{"0.tar": tarOf(3, "a")}),
		"games between tars":         {"0.tar": tarOf(3, "a"), "1.tar": games(), "2.tar": games(), "3.tar": tarOf(3, "b")},
		"lines beside tars":          with(tars(5), map[string][]byte{"a.jsonl": linesOf(100, "a")}),
		"lines beside games":         with(tars(5), map[string][]byte{"a.jsonl": linesOf(100, "a"), "002.tar": games()}),
		"a README beside tars":       with(tars(5), map[string][]byte{"README.txt": []byte("tars\n")}),
		"an empty shard first":       with(tars(6), map[string][]byte{"000.tar": nil}),
		"an empty shard":             with(tars(6), map[string][]byte{"003.tar": nil}),
		"nothing but empty shards":   {"0.tar": make([]byte, 1024), "1.tar": make([]byte, 1024), "2.tar": make([]byte, 1024), "3.tar": make([]byte, 1024)},
		"no tar first":               with(tars(6), map[string][]byte{"000.tar": bytes.Repeat([]byte("x"), 100_000)}),
		"a cut shard first":          with(tars(6), map[string][]byte{"000.tar": cut}),
		"a cut shard":                with(tars(6), map[string][]byte{"003.tar": cut}),
		"a wrong shard before games": with(tars(6), map[string][]byte{"001.tar": wrong, "004.tar": games()}),
		"compressed members":         with(tars(6), map[string][]byte{"002.tar": gzipped, "003.tar": gzipped}),
	} {
		for _, policy := range []spec.OnCorrupt{spec.CorruptFail, spec.CorruptSkip} {
			t.Run(fmt.Sprint(name, ", ", policy), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				server := faultserver.New()
				for path, b := range shards {
					w.write(path, b)
					server.PutBytes(path, b)
				}
				set := func(c *Config) { c.OnCorrupt = policy }
				here, refused := w.open(set)
				there, err := fromServer(t, server, set)
				if refused != nil {
					require.Error(t, err)
					require.Equal(t, strings.ReplaceAll(refused.Error(), w.data, "ROOT"), strings.ReplaceAll(err.Error(), "http://unkind.test/data", "ROOT"))
					return
				}
				require.NoError(t, err)
				defer func() { require.NoError(t, here.Close()); require.NoError(t, there.Close()) }()
				require.Equal(t, here.Format(), there.Format())
				require.Equal(t, here.Fingerprint(), there.Fingerprint())
				require.Equal(t, blobs(here), blobs(there))
			})
		}
	}
}

// Tars on a server take one request each although their format is not named, and two more to find
// out the format.
func TestDetectingAndIndexingTarTakesOneRequest(t *testing.T) {
	const shards = 100
	server := manyShards(t, shards)
	c, err := fromServer(t, server, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.Equal(t, "tar", c.Format().Name)
	require.Equal(t, shards+2, gets(server))
}

// If one file can't be read at first, the shards that the pass has finished are not read again, and
// the reported progress ends with all shards.
func TestIndexPassKeepsFinishedShardsWhenAllFilesAreOpened(t *testing.T) {
	const shards = 61
	server := manyShards(t, shards-1)
	server.PutBytes("030-small.tar", tarOf(2, "s")) // the smallest comes last
	server.On(faultserver.Path("030-small.tar"), faultserver.Status(403, "AccessDenied")).Times(1)
	var last Progress
	c, err := fromServer(t, server, func(c *Config) { c.Progress = func(p Progress) { last = p } })
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.GreaterOrEqual(t, last.Reused, 20, "32 are read at a time")
	require.Equal(t, shards, last.Reused+last.Shards)
	require.EqualValues(t, c.Records(), last.Records)
	require.Empty(t, c.Damaged())
}
