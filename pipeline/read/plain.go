package read

import (
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// plainReason is why compressed shards are read by a strategy for uncompressed ones.
const plainReason = "the compressed shards are in the disk cache, decoded"

// usePlain reports whether all shards are compressed and whole in the disk cache, decoded. If so,
// the fetcher reads them from there as uncompressed shards.
func (f *Fetcher) usePlain() bool {
	c := &f.o
	if c.Spool.Plain == nil || c.Read != spec.ReadAuto {
		return false
	}
	all := Choice{Spooled: make([]uint64, (f.o.Index.Shards()+63)/64)}
	some := false
	for i := range f.o.Index.Shards() {
		if x := f.o.Index.Shard(i); x.Records > 0 {
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
	raw := f.o
	f.plain, err = c.Spool.Plain(f.keptShards(&all), func(shard int, write func([]byte) error) error {
		return decodeWhole(raw, shard, write)
	})
	if err != nil || f.plain == nil {
		return false
	}
	f.o.SetInput(plainIndex{raw.Index, f.plain}, f.plain)
	if choose.AtService(c.Profile.Kind) {
		c.Profile = profile.Defaults(profile.KindVirtual) // a local disk
	}
	return true
}

// plainIndex is an index of compressed shards that are decoded in a disk cache.
type plainIndex struct {
	chunkmap.Index
	plain *diskcache.Plain
}

// Shard returns a shard as it is in the cache.
func (x plainIndex) Shard(i int) catalog.Shard {
	s := x.Index.Shard(i)
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

// plainHeldBytes limits the memory of a decoder of a shard that is damaged in the disk cache;
// plainBlockBytes is the size of its reads.
const (
	plainHeldBytes  = 64 << 20
	plainBlockBytes = 256 << 10
)

// decodeWhole decodes a shard of a compressed dataset from front to back.
func decodeWhole(o Options, shard int, write func([]byte) error) error {
	began := time.Now()
	o.Decoders, o.Choice = 1, Choice{}
	o.Survey = &choose.Survey{Limits: choose.Limits{DecoderBytes: plainHeldBytes, RawBlockBytes: plainBlockBytes}}
	set := decode.NewSet(&o, nil, budget.New(plainHeldBytes), func() int64 { return int64(time.Since(began)) + 1 }, nil)
	defer set.Close()
	return set.Through(shard, new(atomic.Int64), new(meter.WaitClock), write)
}
