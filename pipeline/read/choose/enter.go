package choose

import (
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// entryPieces is at most how many pieces lie between two entry points where
	// these are often enough to read a shard through them.
	entryPieces = 4
	// MostDecodedAgain is at most how often each byte of a shard is decoded
	// beside the first time, where its members are often enough: a processor
	// decodes 0.4 to 1.2 GB/s, and a disk takes all of it and gives it back at
	// some hundred MB/s.
	MostDecodedAgain = 3
	// MostDecodedAgainFull is that for a full shuffle, for which a spool would have
	// to hold all there is: with entry points a MiB apart, of records of 12 KiB.
	MostDecodedAgainFull = 64
)

// entering is what decides whether the places in a shard where decoding can
// start are near enough to each other that it need not be spooled.
type entering struct {
	pieceBytes float64
	partBytes  float64 // up to which a part is near enough, each of whose records is soon wanted
	// mostBytes is at most how much lies between two places: what each lane is
	// in fits in half of the memory.
	mostBytes float64
	// lost is the share of records that memory does not hold until their turn
	// comes: each of these is decoded again, from the place before it on.
	lost  float64
	share float64 // of its records that an epoch has of a shard: less than 1 of a sample
	full  bool    // the shuffle is over everything
	// reopened says that decoders don't all stay open, so that many a piece is
	// decoded from the place before it on.
	reopened bool
}

func (s *Sizes) entering() entering {
	lanes := float64(max(s.Order.Lanes, 1) * max(s.Places, 1))
	cache := float64(s.Limits.CacheBytes)
	// What records have beside decoders: half of it whatever these hold.
	memory := float64(s.Room(s.OpenDecoders()))
	e := entering{
		pieceBytes: float64(s.pieceBytes()),
		mostBytes:  cache / 2 / lanes,
		reopened:   2*lanes > float64(s.Decoders) || lanes*float64(s.Held.DecoderBytes) > float64(s.Limits.DecoderBytes),
	}
	e.share = s.Held.share()
	e.full = s.Order.Shuffle == spec.ShuffleFull
	if !e.full {
		e.partBytes = float64(SegmentBytes(s.MemoryBytes))
	}
	if waits := float64(s.waiting()); waits > memory && s.Order.Shuffle != spec.ShuffleNone {
		e.lost = 1 - memory/waits
	}
	return e
}

// enough says whether the places in a shard are near enough, on average.
func (e *entering) enough(s *Shard) bool {
	decoded := float64(s.DecodedBytes)
	record := decoded / float64(s.Records)
	near := entryPieces * e.pieceBytes
	if s.Parts {
		near = max(near, e.partBytes)
	}
	if part := decoded / float64(max(s.EntryPoints, 1)); part <= near {
		// Its owner has cut it at records, to be entered there; and for a full
		// shuffle a spool would have to hold all there is.
		return e.lostAgain(part, record) <= e.mostAgain()
	}
	member := decoded / float64(max(s.Members, 1))
	again := e.lostAgain(member, record)
	if e.reopened {
		again += member / 2 / max(e.pieceBytes, record)
	}
	return member <= e.mostBytes && again <= MostDecodedAgain
}

func (e *entering) mostAgain() float64 {
	if e.full {
		return MostDecodedAgainFull
	}
	return MostDecodedAgain
}

// lostAgain is about how often each byte of a shard of members and records of such
// sizes is decoded again for records that memory has not held. Lc0's games of
// 1.4 MiB in a reservoir of 137 MB were decoded 104 times with 256 MiB, 1.8 times
// with 384 MiB.
func (e *entering) lostAgain(memberBytes, recordBytes float64) float64 {
	return e.share * e.lost * (memberBytes/2 + max(e.pieceBytes, recordBytes)) / recordBytes
}
