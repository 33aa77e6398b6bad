package scan

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

var (
	spoolReservoir = spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 3, SizeRecords: 90}
	spoolFull      = spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1}
)

// spoolConfig configures a scanner with a spool that has room for what the order needs.
func spoolConfig(t testing.TB, d *readtest.Dataset, memory int64, o spec.Order, store storage.Storage) config {
	t.Helper()
	return configFor(t, d, settings{memory: memory, read: spec.ReadSpool, order: o}, store)
}

// The spool's file is replaced by one that can't be written. Filling a disk instead would take all
// that is left of it, and other programs that write to it would find it full.
func TestUnwritableSpoolFailsItsRecords(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900})
	c := spoolConfig(t, d, 300<<10, spoolFull, readtest.OpenStorage(t, d.Dir))
	sc := newScanner(t, c)
	file := openIn(t, sc.spool.Stats().Dir)
	writable, err := unix.Dup(file)
	require.NoError(t, err)
	readOnly, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer readOnly.Close()
	require.NoError(t, unix.Dup3(int(readOnly.Fd()), file, unix.O_CLOEXEC))
	seq := readtest.RandomOrder(1, d.Index)
	r := sc.Open(seq)
	defer r.Close()
	var l budget.Records
	err = r.Read(context.Background(), 0, 5, &l)
	require.ErrorContains(t, err, "write the spool in "+sc.spool.Stats().Dir)
	var record *chunkmap.RecordError
	require.ErrorAs(t, err, &record)

	// It works again when the file can be written. Errors of shards that failed before are still
	// noted, once each: their decoders may have begun before, and ended after, anything that is
	// done here.
	require.NoError(t, unix.Dup3(writable, file, unix.O_CLOEXEC))
	require.NoError(t, unix.Close(writable))
	for told := 0; ; told++ {
		if err = readtest.ReadEqual(d, r, seq, 20); err == nil {
			break
		}
		require.ErrorContains(t, err, "write the spool in ")
		require.Less(t, told, 3, "more failures than shards")
	}
}

// openIn returns the descriptor of this process's file in a directory.
func openIn(t *testing.T, dir string) int {
	t.Helper()
	links, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, link := range links {
		if to, err := os.Readlink("/proc/self/fd/" + link.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			fd, err := strconv.Atoi(link.Name())
			require.NoError(t, err)
			return fd
		}
	}
	require.Fail(t, "no file is open in "+dir)
	return -1
}

func TestSpoolDetectsWhenPartIsFullyDelivered(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "zst", Shards: 6, Records: 110, MaxBytes: 900})
	for which, part := range readtest.Parts(d.Index) {
		t.Run(which, func(t *testing.T) {
			c := configFor(t, d, settings{memory: 64 << 20, read: spec.ReadSpool, order: spoolReservoir, part: part}, readtest.OpenStorage(t, d.Dir))
			sc := newScanner(t, c)
			readEpochs(t, d, sc, part.Of(readtest.ReservoirOrder(3, d.Index, 3, 90)), 1)
			spooled := 0
			for shard, x := range d.Index.ShardTable {
				if s, _ := sc.spool.Find(shard); s != nil {
					spooled++
					require.Zero(t, s.Left())
					require.NotZero(t, part.Count(x.First, x.First+x.Records), "a shard without records of the part")
				}
			}
			require.NotZero(t, spooled)
		})
	}
}
