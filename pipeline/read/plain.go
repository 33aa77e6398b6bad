package read

import (
	"errors"
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

// AsRead returns the survey of the dataset as a fetcher would read it now: if all shards are
// compressed, and whole in the disk cache, decoded, they are read from there as uncompressed ones;
// else it returns s. Until close is called the cache keeps them.
func (s *Survey) AsRead() (v *Survey, close func() error, err error) {
	v, plain, err := s.fromCache(s.o.Spool.MaxBytes)
	if plain == nil {
		return s, func() error { return nil }, err
	}
	return v, plain.Close, nil
}

// fromCache returns the survey of the shards in the disk cache, for a spool of at most that many
// bytes, and the storage that has them; nil if they are not read from there.
func (s *Survey) fromCache(maxSpoolBytes int64) (*Survey, *diskcache.Plain, error) {
	if s.o.Spool.Plain == nil || s.o.Read != spec.ReadAuto {
		return nil, nil, nil
	}
	all := Choice{Spooled: make([]uint64, (s.o.Index.Shards()+63)/64)}
	some := false
	for i := range s.o.Index.Shards() {
		if x := s.o.Index.Shard(i); x.Records > 0 {
			if x.Codec == nil {
				return nil, nil, nil
			}
			all.Spooled[i/64] |= 1 << (i % 64)
			some = true
		}
	}
	if !some {
		return nil, nil, nil
	}
	raw := s.o
	plain, err := raw.Spool.Plain(s.keptShards(&all), func(shard int, write func([]byte) error) error {
		return decodeWhole(raw, shard, write)
	})
	if err != nil || plain == nil {
		return nil, nil, nil // they are decoded again
	}
	v := &Survey{o: raw, plain: true}
	v.o.SetInput(plainIndex{raw.Index, plain}, plain)
	if choose.AtService(raw.Profile.Kind) {
		v.o.Profile = profile.Defaults(profile.KindVirtual) // a local disk
	}
	if err := v.look(maxSpoolBytes); err != nil {
		return nil, nil, errors.Join(err, plain.Close())
	}
	return v, plain, nil
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
