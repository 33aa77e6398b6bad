package read

import (
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// plainReason is why compressed shards are read by a strategy for uncompressed ones.
const plainReason = "the compressed shards are in the disk cache, decoded"

// usePlain reports whether all shards are compressed and whole in the disk cache, decoded. If so,
// the fetcher reads them from there as uncompressed shards.
func (f *Fetcher) usePlain() bool {
	c := &f.config
	if c.Spool.Plain == nil || c.Read != spec.ReadAuto {
		return false
	}
	all := Choice{Spooled: make([]uint64, (f.index.Shards()+63)/64)}
	some := false
	for i := range f.index.Shards() {
		if x := f.index.Shard(i); x.Records > 0 {
			if x.Codec == nil {
				return false
			}
			all.Spooled[i/64] |= 1 << (i % 64)
			some = true
		}
	}
	if !some {
		return false
	}
	var err error
	raw, store := f.index, f.storage
	f.plain, err = c.Spool.Plain(f.keptShards(&all), func(shard int, write func([]byte) error) error {
		return f.decodeWhole(raw, store, shard, write)
	})
	if err != nil || f.plain == nil {
		return false
	}
	f.index, f.storage, f.caps = plainIndex{raw, f.plain}, f.plain, f.plain.Caps()
	if choose.AtService(c.Storage.Kind) {
		c.Storage = profile.Defaults(profile.KindVirtual) // a local disk
	}
	return true
}

// plainIndex is an index of compressed shards that are decoded in a disk cache.
type plainIndex struct {
	index
	plain *diskcache.Plain
}

// Shard returns a shard as it is in the cache.
func (x plainIndex) Shard(i int) catalog.Shard {
	s := x.index.Shard(i)
	if s.Codec == nil || s.Records == 0 {
		return s
	}
	s.Object, s.Codec, s.Parts, s.Points = x.plain.Object(i), nil, false, 0
	return s
}

// Entry returns where reading can begin: anywhere.
func (plainIndex) Entry(_ int, decodedBytes int64) format.Entry {
	return format.Entry{DecodedBytes: decodedBytes, RawBytes: decodedBytes}
}

const (
	// Shards that are damaged in the disk cache are decoded with buffers of this size, and read in
	// blocks of this size.
	plainBlockBytes = 256 << 10
	plainHeldBytes  = 64 << 20
)

// decodeWhole decodes a shard from front to back.
func (f *Fetcher) decodeWhole(x index, s storage.Storage, shard int, write func([]byte) error) error {
	began := time.Now()
	set := decode.NewSet(decode.Config{
		Index: x, Pieces: wholeShards{}, Submit: func(reads []*storage.Read) {
			f.meter.Reading.Begin(len(reads))
			s.Submit(reads)
		},
		Meter: f.meter, Place: shardNames{x}, Now: func() int64 { return int64(time.Since(began)) + 1 }, Log: f.config.Log,
		Most: 1, LimitBytes: plainHeldBytes, BlockBytes: plainBlockBytes, Patience: f.config.ReadTimeout, Hold: func(int64) {},
	}, noWork{})
	defer set.Close()
	d := set.Whole(shard, plainBlockBytes, new(atomic.Int64), new(meter.WaitClock))
	defer set.End(d)
	set.TakeCore()
	defer set.GiveCore()
	size := x.Shard(shard).DecodedBytes
	for buf := make([]byte, min(plainBlockBytes, size)); d.Pos() < size; {
		b := buf[:min(size-d.Pos(), int64(len(buf)))]
		if err := d.Fill(b); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
	}
	return d.EndMember()
}

// shardNames names shards for the meter.
type shardNames struct{ index }

func (n shardNames) Object(record uint64) string { return pinned.ShardOf(n.index, record) }

// wholeShards are the pieces of shards that are decoded whole: none.
type wholeShards struct{}

func (wholeShards) PiecesOf(int) (first, last int) { return 0, 0 }
func (wholeShards) StartBytes(int) int64           { return 0 }
func (wholeShards) AnyFrom(int, int) bool          { return false }

// noWork is for decoders that have no loads.
type noWork struct{}

func (noWork) Room(decode.Load) bool                    { return false }
func (noWork) Passing(*decode.Decoder, int) decode.Load { return nil }
func (noWork) Next(int, int) int                        { return -1 }
func (noWork) Came(decode.Load)                         {}
func (noWork) Broken(int, error)                        {}
func (noWork) Failed([]decode.Load, error)              {}
func (noWork) Shrink()                                  {}
