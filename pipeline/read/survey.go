package read

import (
	"errors"
	"strings"
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
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Survey is a dataset before it is read: its sizes, from which the ways to read it follow. It holds
// neither memory for records nor room on a disk; NewFetcher takes these. It is immutable and safe
// for concurrent use.
type Survey struct {
	// o is complete but for Choice, which a Fetcher sets. The Survey of a Fetcher's o may have finer
	// pieces than sizes, if its choice requires them.
	o     Options
	sizes *choose.Survey
	plain bool // the shards are compressed, and read from the disk cache, which has them decoded
}

// NewSurvey surveys a dataset. It reads nothing. The caller keeps ownership of the catalog and the
// storage.
func NewSurvey(c *catalog.Catalog, s storage.Storage, o Options) (*Survey, error) {
	return newSurvey(c, s, o)
}

func newSurvey(x chunkmap.Index, s storage.Storage, o Options) (*Survey, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.SetDefaults()
	o.SetInput(x, s)
	v := &Survey{o: o}
	return v, v.look(o.Spool.MaxBytes)
}

// look computes the dataset's sizes, for a spool of at most that many bytes, 0 for what the order
// needs.
func (s *Survey) look(maxSpoolBytes int64) error {
	room := int64(0)
	if hints := s.o.Caps.Hints; hints != nil {
		room = max(hints.Use().RoomBytes, 0)
	}
	err := s.o.LookAtSizes(maxSpoolBytes, room)
	s.sizes = s.o.Survey
	return err
}

// Choose returns how shards are read with the given strategy ("" for scan), from the catalog and
// the settings alone. It makes no spool.
func (s *Survey) Choose(asked spec.Read) (Choice, error) {
	sizes := s.sizes.Sizes()
	c, err := sizes.Choose(asked)
	if err == nil && asked == spec.ReadAuto && c.DecodesAgain && s.keepsAll() {
		c = sizes.Keep()
	}
	if s.plain {
		c.Reason = plainReason + "; " + strings.TrimPrefix(c.Reason, "no shard is compressed, and ")
	}
	return c, err
}

// Needs returns what an epoch of the dataset needs, from the catalog and the settings alone.
func (s *Survey) Needs() Needs {
	sizes := s.sizes.Sizes()
	return sizes.Needs()
}

// ReserveCache reserves the part of a disk cache through which data will pass while the dataset is
// read, so that filling the cache leaves room for it. A fetcher reserves what it needs by itself.
func (s *Survey) ReserveCache() {
	hints := s.o.Caps.Hints
	if hints == nil || !hints.Use().Keeps {
		return
	}
	how, err := s.Choose(s.o.Read)
	if err != nil {
		how = Choice{Strategy: spec.ReadScan}
	}
	sizes := s.sizes.Sizes()
	hints.SetShare(sizes.Share(how))
}

// Meter returns the meter of where the time of fetchers goes.
func (s *Survey) Meter() *meter.Meter { return s.o.Meter }

// Profile returns which reads are fast at the storage that the dataset is read from.
func (s *Survey) Profile() storage.Profile { return s.o.Profile }

// plainReason is why compressed shards are read by a strategy for uncompressed ones.
const plainReason = "the compressed shards are in the disk cache, decoded"

// AsRead returns the survey of the dataset as a fetcher would read it now: if all shards are
// compressed, and whole in the disk cache, decoded, they are read from there as uncompressed ones;
// else it returns s. It only looks at the cache, so it is for forecasts.
func (s *Survey) AsRead() (*Survey, error) {
	all := s.allCompressed()
	if all == nil || s.o.Spool.DryKeep == nil {
		return s, nil
	}
	shelf := s.o.Spool.DryKeep(s.keptShards(all))
	if shelf == nil {
		return s, nil
	}
	for i := range s.o.Index.Shards() {
		if all.Spools(i) && !shelf.Has(i) {
			return s, shelf.Close()
		}
	}
	v, err := s.plainSurvey(func(shard int) storage.Object {
		x := s.o.Index.Shard(shard)
		o := x.Object
		o.SizeBytes = x.DecodedBytes
		return o
	}, new(dryStorage), s.o.Spool.MaxBytes)
	return v, errors.Join(err, shelf.Close())
}

// keepsAll reports whether a disk cache would keep all shards decoded, so that later epochs and
// mounts read them as uncompressed ones.
func (s *Survey) keepsAll() bool {
	all := s.allCompressed()
	return all != nil && s.o.Spool.KeepsAll != nil && s.o.Spool.KeepsAll(s.keptShards(all))
}

// allCompressed returns a choice that spools all shards, if all are compressed and may be read from
// the disk cache; else nil.
func (s *Survey) allCompressed() *Choice {
	if s.o.Read != spec.ReadAuto {
		return nil
	}
	all, some := &Choice{Spooled: make([]uint64, (s.o.Index.Shards()+63)/64)}, false
	for i := range s.o.Index.Shards() {
		if x := s.o.Index.Shard(i); x.Records > 0 {
			if x.Codec == nil {
				return nil
			}
			all.Spooled[i/64] |= 1 << (i % 64)
			some = true
		}
	}
	if !some {
		return nil
	}
	return all
}

// plainSurvey returns the survey of the shards as uncompressed objects of a storage, for a spool of
// at most that many bytes.
func (s *Survey) plainSurvey(object func(shard int) storage.Object, from storage.Storage, maxSpoolBytes int64) (*Survey, error) {
	v := &Survey{o: s.o, plain: true}
	v.o.SetInput(plainIndex{s.o.Index, object}, from)
	if choose.AtService(s.o.Profile.Kind) {
		v.o.Profile = storage.DefaultProfile(storage.KindVirtual) // a local disk
	}
	return v, v.look(maxSpoolBytes)
}

// fromCache returns the survey of the shards in the disk cache, for a spool of at most that many
// bytes, and the storage that has them; nil if they are not read from there.
func (s *Survey) fromCache(maxSpoolBytes int64) (*Survey, *diskcache.Plain, error) {
	all := s.allCompressed()
	if all == nil || s.o.Spool.Plain == nil {
		return nil, nil, nil
	}
	raw := s.o
	plain, err := raw.Spool.Plain(s.keptShards(all), func(shard int, write func([]byte) error) error {
		return decodeWhole(raw, shard, write)
	})
	if err != nil || plain == nil {
		return nil, nil, nil // they are decoded again
	}
	v, err := s.plainSurvey(plain.Object, plain, maxSpoolBytes)
	if err != nil {
		return nil, nil, errors.Join(err, plain.Close())
	}
	return v, plain, nil
}

// plainIndex is an index of compressed shards that are decoded in a disk cache.
type plainIndex struct {
	chunkmap.Index
	object func(shard int) storage.Object
}

// Shard returns a shard as it is in the cache.
func (x plainIndex) Shard(i int) catalog.Shard {
	s := x.Index.Shard(i)
	if s.Codec == nil || s.Records == 0 {
		return s
	}
	s.Object, s.Codec, s.Parts, s.Points = x.object(i), nil, false, 0
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

// Start is what has to be decoded before the first bytes of a stream can be read, if they are in
// compressed shards.
type Start struct {
	Shards      int   `json:"shards"`       // compressed, that have some of the first records
	DecodeBytes int64 `json:"decode_bytes"` // to decode before and including these records
	// Seconds is about how long that takes, at assumed rates, on all processors that were available
	// when the fetcher was made.
	Seconds float64 `json:"seconds"`
}

// decodedBytesPerSecond returns the rate of decoding on one processor: JSON text, by this module's
// decoders, on a server of 2026.
func decodedBytesPerSecond(codec string) float64 {
	switch codec {
	case "zstd", "lz4":
		return 1.2e9
	}
	return 400e6
}

// Start returns what has to be decoded for the first n records of a sequence: they are needed at
// about the same time, since readers look that far ahead.
func (f *Fetcher) Start(seq Sequence, n int) Start {
	if f.scanner == nil {
		return Start{} // no shard is compressed
	}
	type stretch struct{ from, to int64 }
	shards := map[int]stretch{}
	numbers := make([]uint64, max(n, 1))
	numbers = numbers[:seq.Records(0, numbers)]
	extents := make([]catalog.Extent, len(numbers))
	f.o.Index.Extents(numbers, extents)
	for _, x := range extents {
		if f.o.Index.Shard(x.Shard).Codec == nil {
			continue
		}
		from := int64(0)
		if !f.o.Choice.Spools(x.Shard) {
			from = f.o.Index.Entry(x.Shard, x.OffsetBytes).DecodedBytes
		}
		s, ok := shards[x.Shard]
		if !ok {
			s.from = from
		}
		shards[x.Shard] = stretch{min(s.from, from), max(s.to, x.OffsetBytes+x.SizeBytes)}
	}
	var s Start
	longest := 0.0 // a shard is decoded on one processor
	for i, x := range shards {
		seconds := float64(x.to-x.from) / decodedBytesPerSecond(f.o.Index.Shard(i).Codec.Name())
		s.Shards++
		s.DecodeBytes += x.to - x.from
		s.Seconds += seconds
		longest = max(longest, seconds)
	}
	s.Seconds = max(s.Seconds/float64(f.scanner.Cores()), longest)
	return s
}
