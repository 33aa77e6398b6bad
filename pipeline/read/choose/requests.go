package choose

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// AtService reports whether a storage is a service, which takes tens of milliseconds and a fraction
// of a cent per request.
func AtService(k storage.Kind) bool { return k == storage.KindObject || k == storage.KindWeb }

// ByRequests reports whether requests are what is to be saved: shards are at a service, or there is
// a disk cache over a slow storage.
func (s *Sizes) ByRequests() bool { return AtService(s.Storage.Kind) || s.CacheRoomBytes > 0 }

// Needs is what an epoch takes from a service, and what is needed locally to read each chunk once.
// The numbers are right within 10 or 20 %.
type Needs struct {
	// Requests are those of an epoch that reads each chunk once, and Bytes what they transfer:
	// compressed shards as they are stored.
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
	// Records is the maximum number of requests of a gather without a cache: one per record. It is
	// 0 if there are compressed shards.
	Records int64 `json:"record_requests,omitempty"`
	// MemoryBytes is the --memory with which shards are scanned, because what waits in the shuffle
	// stays in it, and CacheBytes the --cache-size with which chunks stay on a disk from their
	// first record to their last. Both are 0 if there are compressed shards.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	CacheBytes  int64 `json:"cache_bytes,omitempty"`
}

// Needs returns what an epoch needs.
func (s *Sizes) Needs() Needs {
	h := &s.Held
	if h.Pieces == 0 {
		return Needs{}
	}
	piece := max(h.Bytes/int64(h.Pieces), 1)
	ranges := max(h.Ranges, 1) * float64(h.Pieces)
	parts := func(bytes, each int64) int64 { return (bytes + each - 1) / each }
	if !s.Compressed {
		return Needs{
			Requests: int64(ranges * float64(parts(max(int64(float64(h.Bytes)/ranges), 1), s.Storage.ReadBytes))), Bytes: h.Bytes, Records: int64(h.Records),
			MemoryBytes: s.memoryToScan(), CacheBytes: s.cacheToKeep(),
		}
	}
	var n Needs
	for i := range s.Shards {
		x := &s.Shards[i]
		switch {
		case x.Wanted == 0:
		case x.Compressed:
			n.Requests += parts(x.StoredBytes, int64(s.Limits.RawBlockBytes))
			n.Bytes += x.StoredBytes
		default:
			n.Requests += parts(x.DecodedBytes, piece)
			n.Bytes += x.DecodedBytes
		}
	}
	return n
}

// chooseRequests chooses if no shard is compressed and requests are what costs. Each chunk takes
// one, if its undelivered records can be kept, in memory or on a disk.
func (s *Sizes) chooseRequests() Choice {
	c := Choice{Strategy: spec.ReadScan}
	waits := s.waitingRead()
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	switch {
	case s.Fits():
		c.Reason = "no shard is compressed, and the dataset fits in memory: one request per chunk"
		return c
	case s.Order.Shuffle == spec.ShuffleNone:
		c.Reason = "no shard is compressed, and shards are read from front to back: one request per chunk"
		return c
	case waits <= s.roomToWait(s.Limits.CacheBytes):
		c.Reason = fmt.Sprintf("no shard is compressed, and the %s of records that wait in the shuffle fit in memory: one request per chunk", size(waits))
		return c
	}
	c.Strategy = spec.ReadGather
	n := s.Needs()
	if s.keepsOpen() {
		c.Chunks = true
		c.Reason = fmt.Sprintf("%s of records wait in the shuffle, too much for memory; the cache keeps the %s of chunks that are begun and not finished: one request per chunk",
			size(waits), size(s.OpenBytes()))
		return c
	}
	c.Reason = fmt.Sprintf("%s of records wait in the shuffle, too much for memory, and no cache keeps the %s of chunks that are begun and not finished: up to one request per record",
		size(waits), size(s.OpenBytes()))
	c.Warning = fmt.Sprintf("an epoch takes up to %s requests, one per record; it takes %s, one per chunk, with --memory %s or with --cache-size %s, or more",
		humanize.Comma(n.Records), humanize.Comma(n.Requests), flagSize(n.MemoryBytes), flagSize(n.CacheBytes))
	return c
}

// flagSize formats a size for flags, rounded up to a MiB.
func flagSize(n int64) string { return fmt.Sprintf("%dMiB", (n+1<<20-1)>>20) }

// waitingRead returns what a scan keeps in memory if each chunk is read when its first record is
// due: waiting records, a twentieth for what is lost between them, and tables.
func (s *Sizes) waitingRead() int64 {
	if s.Held.Records == 0 {
		return 0
	}
	open := s.ordered(openChunks, float64(s.Held.Pieces))
	tables := int64(open / float64(max(s.Held.Pieces, 1)) * float64(s.Held.TableBytes))
	unsent := s.UnsentBytes()
	return min(unsent+unsent/20+tables, s.AllBytes())
}

// Of the memory for pieces, 1/aheadPart is for what is read ahead, and waitsShare of the rest may
// wait in a shuffle: segments of which less was delivered are not worth copying, and are dropped
// (scan's cache).
const (
	aheadPart  = 8
	waitsShare = 0.8
)

// roomToWait returns how much may wait in a shuffle if pieces have cacheBytes of memory.
func (s *Sizes) roomToWait(cacheBytes int64) int64 {
	return int64(waitsShare * float64(cacheBytes-min(cacheBytes/aheadPart, LeastLookahead)))
}

// memoryToScan returns the budget with which a shuffle is scanned.
func (s *Sizes) memoryToScan() int64 {
	waits := float64(s.waitingRead()) / waitsShare
	cache := int64(min(waits*aheadPart/(aheadPart-1), waits+LeastLookahead))
	tables := s.MemoryBytes - s.Limits.CacheBytes // and spare segments
	if s.Limits.CacheBytes == s.MemoryBytes/2 {
		tables = s.MemoryBytes // they are more than half, and not known
	}
	return roundUp(max(cache+max(tables, 2*maxSegmentBytes), 16<<20), 16<<20)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// 1/keptAheadPart of a cache is for what is read ahead, in addition to what an order has open. A
// cache of half a dataset then saves 0.48 of the requests of each epoch after the first; an eighth
// would leave 0.44. From 64 GiB on this is more than MostLookahead.
const keptAheadPart = 32

// KeptAhead returns how far all readers together look ahead into a cache with a choice. If chunks
// are gathered from there it is at least LeastLookahead; a scan has memory, too, and its part of a
// small cache is better used to keep data for the next epoch.
func (s *Sizes) KeptAhead(c Choice) int64 {
	switch {
	case s.LookaheadBytes > 0:
		return s.LookaheadBytes
	case c.Chunks:
		return max(min((s.CacheRoomBytes-s.OpenBytes())/keptAheadPart, MostLookahead), LeastLookahead)
	}
	return min(s.CacheRoomBytes/keptAheadPart, MostLookahead)
}

// cacheToKeep returns the size of a cache that keeps the chunks of an order while they are open,
// and what is read ahead; or everything, if that is less.
func (s *Sizes) cacheToKeep() int64 {
	ahead := s.LookaheadBytes
	if ahead == 0 {
		ahead = LeastLookahead
	}
	return roundUp(min(s.OpenBytes()+ahead, s.keptWhole()), 16<<20)
}

// keptWhole returns the size of a cache that holds all shards: pages, a checksum of four bytes per
// page, and what is kept per object.
func (s *Sizes) keptWhole() int64 {
	all := s.Held.AllBytes()
	return all + all/512 + int64(s.Held.Shards)*(16<<10)
}

// keepsOpen reports whether there is a cache that keeps what an order has open.
func (s *Sizes) keepsOpen() bool {
	return s.CacheRoomBytes > 0 && s.CacheRoomBytes >= s.cacheToKeep()
}

// Share returns how much of a cache is for chunks that pass through it with a choice: those that
// are open, and those that are read ahead. It is 0 if the cache holds everything, or nothing is
// planned.
func (s *Sizes) Share(c Choice) int64 {
	ahead := s.KeptAhead(c)
	switch {
	case s.CacheRoomBytes >= s.keptWhole() || s.allCompressed() || c.Strategy == spec.ReadGather && !c.Chunks:
		return 0
	case c.Chunks:
		ahead += s.OpenBytes()
	}
	return min(ahead, s.CacheRoomBytes)
}

func (s *Sizes) allCompressed() bool { return s.Held.Packed == s.Held.Shards }

// StaleRecords returns after how many records of an order hardly any chunk still waits for a
// record; 0 if that is possible at any time. One chunk in 150 waits longer.
func (s *Sizes) StaleRecords() uint64 {
	o := s.Order
	if o.Shuffle == spec.ShuffleFull || s.Held.Pieces == 0 {
		return 0
	}
	lanes := float64(max(o.Lanes, 1))
	b := max(float64(o.SizeRecords)/lanes, 1)
	r := max(float64(s.Held.Records)/float64(s.Held.Pieces), 1)
	return uint64(lanes * float64(max(s.Places, 1)) * (b*(harmonic(r)+5) + 2*r))
}

// Lookahead returns how many pieces may be wanted at a time (0: any number), if the pieces that
// decoders store as they pass must not fill the memory, and whether a scan sweeps. A scan sweeps if
// it was asked for and would not have been chosen: memory does not hold the shards, and decoding
// can start at few places in them. Then readers look no further ahead than a quarter of the memory
// has room for, and a decoder that has begun continues to the last piece that is wanted in its
// shard. So each pass loads that many pieces.
func (s *Sizes) Lookahead(c Choice) (mostPieces int64, sweeps bool) {
	if c.Strategy != spec.ReadScan || !s.Compressed || s.Fits() || s.Held.Pieces == 0 {
		return 0, false
	}
	h := &s.Held
	each := s.AllBytes()/int64(h.Pieces) + 1
	if usual, err := s.Choose(spec.ReadAuto); err != nil || usual.Strategy != spec.ReadScan {
		return max(s.Limits.CacheBytes/4/each, 1), true
	}
	room := s.Room(s.OpenDecoders())
	most := max(room/4*3/each, 1)
	if h.TableBytes < h.Bytes/4 && s.Order.Shuffle != spec.ShuffleFull {
		// If pieces are mostly bytes rather than tables, some of what waits in the shuffle has been
		// delivered, and takes no room any more.
		most = max(most, int64(2*s.OpenPieces()))
	}
	return most, false
}

// How far all readers together look ahead under --lookahead auto: what they read in LookaheadTime,
// within these limits. One request in a thousand takes seconds, and its hedge a few hundred
// milliseconds: with 1.3 s ahead no reader waits for it.
const (
	LeastLookahead = 128 << 20
	MostLookahead  = 2 << 30
	LookaheadTime  = 2 * time.Second
)

// Reach returns how far one of several readers looks ahead: its share of what was asked for or, if
// that is 0, what it reads at its rate in LookaheadTime.
func Reach(askedBytes int64, bytesPerSecond float64, readers int64) int64 {
	readers = max(readers, 1)
	if askedBytes > 0 {
		return max(askedBytes/readers, 1)
	}
	rate := int64(min(bytesPerSecond*LookaheadTime.Seconds(), MostLookahead))
	return max(min(max(rate, LeastLookahead/readers), MostLookahead/readers), 1)
}
