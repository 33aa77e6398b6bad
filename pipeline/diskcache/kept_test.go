package diskcache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const keptShardBytes = 1<<20 + 77

// keptConfig describes that many shards; version is their objects'.
func keptConfig(shards int, version string) ShelfConfig {
	c := ShelfConfig{
		NeedBytes: RoomBytes(keptShardBytes), AllBytes: int64(shards) * RoomBytes(keptShardBytes), MostTableBytes: 1 << 20,
		Identify: func(shard int) (Identity, bool) {
			raw := Identity{URL: fmt.Sprint("test://bucket/", shard, ".zst"), Validator: version}
			return DecodedIdentity(raw, 1000, "zstd/1"), true
		},
		DecodedBytes: func(int) int64 { return keptShardBytes },
	}
	for i := range shards {
		c.Shards = append(c.Shards, i)
	}
	return c
}

// keptShelf returns a shelf for that many shards in a cache of a world.
func keptShelf(t *testing.T, s *Storage, shards int, version string) *Shelf {
	t.Helper()
	shelf, err := s.NewShelf(keptConfig(shards, version))
	require.NoError(t, err)
	return shelf
}

func takeKept(t *testing.T, shelf *Shelf, shard int) *Decoded {
	t.Helper()
	d, ok := shelf.Take(shard, keptShardBytes)
	require.True(t, ok)
	return d
}

func openKept(t *testing.T, shelf *Shelf, shard int, want State) *Decoded {
	t.Helper()
	d := takeKept(t, shelf, shard)
	state, err := d.Open()
	require.NoError(t, err)
	require.Equal(t, want, state)
	return d
}

// keepShards keeps shards 0 … n-1 of version v1.
func keepShards(t *testing.T, s *Storage, n int) {
	t.Helper()
	shelf := keptShelf(t, s, n, "v1")
	for shard := range n {
		d := openKept(t, shelf, shard, Ours)
		fillDecoded(t, d, decodedBytes(shard, keptShardBytes))
		d.Leave(Keep)
	}
	require.NoError(t, shelf.Close())
}

// requireKept compares all of a shard.
func requireKept(t *testing.T, d *Decoded, shard int) {
	t.Helper()
	got, err := readDecoded(d, [][2]int64{{0, keptShardBytes}})
	require.NoError(t, err)
	require.True(t, bytes.Equal(decodedBytes(shard, keptShardBytes), got))
}

// Two fetchers over one version present the same decoded shards, and each restores what is lost of
// them by itself, also after the other was closed.
func TestTwoFetchersPresentTheSameDecodedShards(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s := w.open(nil)
	keepShards(t, s, 2)
	raw := func(shard int) storage.Object {
		return storage.Object{Path: fmt.Sprint(shard, ".zst"), SizeBytes: 1000}
	}
	var decodes [2]int
	var plains [2]*Plain
	for i := range plains {
		plains[i] = s.OpenPlain(keptConfig(2, "v1"), raw, func(shard int, write func([]byte) error) error {
			decodes[i]++
			return write(decodedBytes(shard, keptShardBytes))
		})
		require.NotNil(t, plains[i])
	}
	require.Len(t, s.plainKeys(), 2)
	read := func(p *Plain, shard int) {
		b := make([]byte, keptShardBytes)
		require.NoError(t, storage.ReadAt(t.Context(), p, p.Object(shard), b, 0))
		require.True(t, bytes.Equal(decodedBytes(shard, keptShardBytes), b))
	}
	for _, p := range plains {
		read(p, 0)
		read(p, 1)
	}
	require.Equal(t, [2]int{}, decodes)
	require.NoError(t, plains[0].Close())
	files, err := filepath.Glob(filepath.Join(w.cache, "v1", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, f := range files {
		require.NoError(t, alter(f, 5000, func(b byte) byte { return b + 1 }))
	}
	read(plains[1], 0)
	read(plains[1], 1)
	require.Equal(t, [2]int{0, 2}, decodes)
	require.NoError(t, plains[1].Close())
	require.Empty(t, s.plainKeys())
}

func TestADecodedShardIsThereForTheNextMountOfTheSameVersion(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s := w.open(nil)
	shelf := keptShelf(t, s, 3, "v1")
	for shard := range 2 {
		d := openKept(t, shelf, shard, Ours)
		fillDecoded(t, d, decodedBytes(shard, keptShardBytes))
		requireKept(t, d, shard)
		d.Leave(Keep)
	}
	unfinished := openKept(t, shelf, 2, Ours)
	require.NoError(t, unfinished.Write(decodedBytes(2, keptShardBytes)[:64<<10]))
	unfinished.Leave(Remove)
	require.NoError(t, shelf.Close())
	require.Zero(t, s.room.aside)
	require.Zero(t, s.room.reserved)
	require.NoError(t, s.Close())

	s = w.open(nil)
	shelf = keptShelf(t, s, 3, "v1")
	for shard := range 2 {
		d := openKept(t, shelf, shard, Whole)
		requireKept(t, d, shard)
		d.Leave(Keep)
	}
	openKept(t, shelf, 2, Ours).Leave(Remove)
	require.NoError(t, shelf.Close())
	shelf = keptShelf(t, s, 3, "v2")
	openKept(t, shelf, 0, Ours).Leave(Remove)
	require.NoError(t, shelf.Close())
	d, err := OpenDirectory(s.dir.path, nil)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.List(t.Context(), func(e Entry) error {
		require.True(t, e.Decoded)
		require.True(t, e.Whole())
		require.EqualValues(t, keptShardBytes, e.SizeBytes)
		return nil
	}))
}

// What a mount has left that was killed is decoded again: its last member was not checked.
func TestAShardWhoseDecoderWasKilledIsDecodedAnew(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	content := decodedBytes(0, keptShardBytes)
	for _, written := range []int{64 << 10, 1 << 20, keptShardBytes} {
		s := w.open(nil)
		shelf := keptShelf(t, s, 1, "v1")
		d := openKept(t, shelf, 0, Ours)
		for at := 0; at < written; at += 64 << 10 {
			require.NoError(t, d.Write(content[at:min(at+64<<10, written)]))
		}
		files := d.ground.(*keptShard)
		files.unclaim()
		files.files.close() // as the kernel does for a process that is killed
		files.files = nil
		other := w.open(nil)
		after := keptShelf(t, other, 1, "v1")
		again := openKept(t, after, 0, Ours)
		fillDecoded(t, again, content)
		requireKept(t, again, 0)
		again.Leave(Remove)
		require.NoError(t, after.Close())
		require.NoError(t, other.Close())
		d.Leave(Remove)
		require.NoError(t, shelf.Close())
		require.NoError(t, s.Close())
	}
}

func TestAMountFollowsAnotherThatDecodesAShard(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s, other := w.open(nil), w.open(nil)
	shelf, second := keptShelf(t, s, 1, "v1"), keptShelf(t, other, 1, "v1")
	content := decodedBytes(0, keptShardBytes)
	d := openKept(t, shelf, 0, Ours)
	follower := openKept(t, second, 0, Theirs)
	for at := 0; at < keptShardBytes; at += 64 << 10 {
		require.NoError(t, d.Write(content[at:min(at+64<<10, keptShardBytes)]))
		there, err := follower.Look()
		require.NoError(t, err)
		require.EqualValues(t, at, there, "the last block may still be found wrong")
		got, err := readDecoded(follower, [][2]int64{{0, there}})
		require.NoError(t, err)
		require.True(t, bytes.Equal(content[:there], got))
	}
	state, err := follower.Claim()
	require.NoError(t, err)
	require.Equal(t, Theirs, state)
	require.NoError(t, d.Finish())
	state, err = follower.Claim()
	require.NoError(t, err)
	require.Equal(t, Whole, state)
	requireKept(t, follower, 0)
	d.Leave(Remove) // not while the other has it open
	require.NoError(t, shelf.Close())
	requireKept(t, follower, 0)
	follower.Leave(Keep)
	require.NoError(t, second.Close())
}

func TestADamagedShardIsNotUsedAgain(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s, other := w.open(nil), w.open(nil)
	shelf, second := keptShelf(t, s, 1, "v1"), keptShelf(t, other, 1, "v1")
	d := openKept(t, shelf, 0, Ours)
	fillDecoded(t, d, decodedBytes(0, keptShardBytes))
	reader := openKept(t, second, 0, Whole)
	d.EachPlace(5000, 1, func(fd int, at, _ int64) {
		_, err := unix.Pwrite(fd, []byte{decodedBytes(0, keptShardBytes)[5000] ^ 1}, at)
		require.NoError(t, err)
	})
	_, err := readDecoded(d, [][2]int64{{5000, 1}})
	require.ErrorContains(t, err, "others than were written")
	d.Leave(Spoilt)
	again := openKept(t, shelf, 0, Ours)
	fillDecoded(t, again, decodedBytes(0, keptShardBytes))
	requireKept(t, again, 0)
	again.Leave(Keep)
	requireKept(t, reader, 0)
	reader.Leave(Keep)
	require.NoError(t, shelf.Close())
	require.NoError(t, second.Close())
	require.NotZero(t, s.Stats().BadPages)
}

// The bound is one for objects as they are and decoded ones: what no mount uses makes room,
// whatever it is, and there is never more on the disk than that.
func TestDecodedShardsAndOthersShareTheBound(t *testing.T) {
	const shards = 6
	w := newWorld(t, map[string][]byte{"a": random(1, 3<<20)})
	bounded := func(c *Config) { c.BoundBytes = 4 << 20 }
	s := w.open(bounded)
	w.read(s, "a", 0, 3<<20)
	settle(s)
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(w.data, "a"))) // no mount has it any more

	s = w.open(bounded)
	shelf := keptShelf(t, s, shards, "v1")
	require.LessOrEqual(t, shelf.CapacityBytes(), int64(4<<20))
	var open []*Decoded
	for shard := range shards {
		d, ok := shelf.Take(shard, keptShardBytes)
		for !ok {
			require.NotEmpty(t, open)
			open[0].Leave(Remove)
			open = open[1:]
			d, ok = shelf.Take(shard, keptShardBytes)
		}
		state, err := d.Open()
		require.NoError(t, err)
		require.Equal(t, Ours, state)
		fillDecoded(t, d, decodedBytes(shard, keptShardBytes))
		requireKept(t, d, shard)
		open = append(open, d)
		require.LessOrEqual(t, w.blocks(), int64(4<<20))
	}
	require.Len(t, open, 3)
	for _, d := range open {
		d.Leave(Keep)
	}
	require.NoError(t, shelf.Close())
	require.NoError(t, s.Close())

	_, err := w.open(func(c *Config) { c.BoundBytes = 1 << 20 }).NewShelf(ShelfConfig{NeedBytes: 2 << 20, AllBytes: 2 << 20})
	require.ErrorContains(t, err, "is less than the")
}

// A disk that is full, or fails, costs the place of a shard and nothing else.
func TestADiskThatTakesNoDecodedShardIsDoneWithout(t *testing.T) {
	for _, err := range []error{unix.ENOSPC, unix.EIO} {
		w := newWorld(t, map[string][]byte{"a": random(1, 10)})
		disk := &failingWrites{disk: kernel{}}
		s := w.open(func(c *Config) { c.disk = disk })
		shelf := keptShelf(t, s, 2, "v1")
		d := openKept(t, shelf, 0, Ours)
		disk.err = err
		require.ErrorIs(t, d.Write(decodedBytes(0, 64<<10)), ErrNotKept)
		d.Leave(Remove)
		d = takeKept(t, shelf, 1)
		_, failed := d.Open()
		require.ErrorIs(t, failed, ErrNotKept)
		d.Leave(Remove)
		require.NoError(t, shelf.Close())
		require.Zero(t, s.room.reserved)
		require.NoError(t, s.Close())
	}
}

type failingWrites struct {
	disk
	err error
}

func (d *failingWrites) write(fd int, p []byte, off int64) error {
	if d.err != nil {
		return d.err
	}
	return d.disk.write(fd, p, off)
}

// Where more shards are on the disk than may be open, those that are left stay there.
func TestAShardThatIsLeftForItsDescriptorsStaysOnTheDisk(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	s := w.open(func(c *Config) { c.MaxFiles = 2 })
	shelf := keptShelf(t, s, 3, "v1")
	d := openKept(t, shelf, 0, Ours)
	fillDecoded(t, d, decodedBytes(0, keptShardBytes))
	_, ok := shelf.Take(1, keptShardBytes)
	require.False(t, ok)
	require.True(t, shelf.Crowded())
	d.Leave(Keep)
	next := openKept(t, shelf, 1, Ours)
	require.False(t, shelf.Crowded())
	next.Leave(Remove)
	d = openKept(t, shelf, 0, Whole)
	requireKept(t, d, 0)
	d.Leave(Keep)
	require.NoError(t, shelf.Close())
}

// When room is made for the share, presented shards stay: to bring back a page of one costs decoding
// all of it.
func TestRoomForTheShareIsNotMadeFromPresentedShards(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, mib)})
	s := w.open(nil)
	w.read(s, "a", 0, mib)
	keepShards(t, s, 2)
	require.NoError(t, s.Close())

	s = w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 3*mib, mib }) // more is there than is for good
	p := s.OpenPlain(keptConfig(2, "v1"), func(shard int) storage.Object {
		return storage.Object{Path: fmt.Sprint(shard, ".zst"), SizeBytes: 1000}
	}, func(shard int, write func([]byte) error) error {
		t.Errorf("shard %d is decoded", shard)
		return write(decodedBytes(shard, keptShardBytes))
	})
	require.NotNil(t, p)
	require.Zero(t, w.read(s, "a", 0, mib))
	recount(t, s) // so that the keeper has nothing to count
	s.keeper.trim()
	for shard := range 2 {
		b := make([]byte, keptShardBytes)
		require.NoError(t, storage.ReadAt(t.Context(), p, p.Object(shard), b, 0))
		require.True(t, bytes.Equal(decodedBytes(shard, keptShardBytes), b))
	}
	require.NotZero(t, w.read(s, "a", 0, mib), "this makes room")
	require.NoError(t, p.Close())
}

// A shard that is decoded again, for what the cache has lost of it, must have its size.
func TestPresentedShardThatDecodesToAnotherSizeIsAnError(t *testing.T) {
	for _, size := range []int64{0, keptShardBytes - 1, keptShardBytes + 1} {
		w := newWorld(t, map[string][]byte{"a": random(1, 10)})
		s := w.open(nil)
		shelf := keptShelf(t, s, 1, "v1")
		d := openKept(t, shelf, 0, Ours)
		fillDecoded(t, d, decodedBytes(0, keptShardBytes))
		d.Leave(Keep)
		require.NoError(t, shelf.Close())
		p := s.OpenPlain(keptConfig(1, "v1"), func(int) storage.Object {
			return storage.Object{Path: "0.zst", SizeBytes: 1000}
		}, func(_ int, write func([]byte) error) error { return write(decodedBytes(0, size)) })
		require.NotNil(t, p)
		files, err := filepath.Glob(filepath.Join(w.cache, "v1", "*", "*.data"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.NoError(t, alter(files[0], 5000, func(b byte) byte { return b + 1 }))
		err = storage.ReadAt(t.Context(), p, p.Object(0), make([]byte, 100), 4950)
		require.ErrorIs(t, err, storage.ErrChanged)
		require.ErrorContains(t, err, fmt.Sprintf("it decodes to %d bytes", size))
		require.NoError(t, p.Close())
	}
}

// A cache is preferred for decoded shards if KeepsAll reports that it holds all of them. The shelf
// that is then opened must agree: it checks only what it does not remove again.
func TestShelfHoldsAllShardsIfTheForecastSaysSo(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 10)})
	const shards = 4
	all := keptConfig(shards, "v1")
	room := all.roomFor(all.AllBytes)
	for name, c := range map[string]struct {
		need, raw, bound int64
		files            int
		holds            bool
	}{
		"room for all and the objects as they are": {0, mib, room + mib, 2 * shards, true},
		"less": {0, mib, room + mib - 1, 2 * shards, false},
		"the order needs all at a time, whatever is left":       {all.AllBytes, mib, room, 2 * shards, true},
		"the order needs all at a time, and that is not there":  {all.AllBytes, 0, room - 1, 2 * shards, false},
		"room for all, but not that many may be open at a time": {0, 0, room, 2*shards - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := all
			config.NeedBytes, config.RawBytes = c.need, c.raw
			s := w.open(func(x *Config) { x.BoundBytes, x.ShareBytes, x.MaxFiles = c.bound, 0, c.files })
			if config.mostBytes(c.bound) > 0 {
				shelf, err := s.NewShelf(config)
				require.NoError(t, err)
				require.Equal(t, c.holds, shelf.arena.(*keptArena).all)
				require.NoError(t, shelf.Close())
			}
			if c.files == 2*shards { // the forecast's number of files is DefaultConfig's
				require.Equal(t, c.holds, config.KeepsAll(c.bound))
			}
		})
	}
}
