package choose

import (
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// entryPieces is the maximum average number of pieces between two entry points at which a shard
	// is read through them.
	entryPieces = 4
	// MostDecodedAgain is how often each byte of a shard may be decoded after the first time: a
	// processor decodes 0.4 to 1.2 GB/s, and a disk takes all of it and returns it at a few hundred
	// MB/s.
	MostDecodedAgain = 3
	// MostDecodedAgainFull is MostDecodedAgain for a full shuffle, for which a spool would have to
	// hold everything: enough for entry points a MiB apart, and records of 12 KiB.
	MostDecodedAgainFull = 64
)

// entering determines whether the places in a shard where decoding can start are close enough to
// each other that it need not be spooled.
type entering struct {
	pieceBytes float64
	partBytes  float64 // parts up to this size are small enough: all their records are needed soon
	// mostBytes is the maximum distance between two such places: what all lanes are in then fits in
	// half of the memory.
	mostBytes float64
	// lost is the share of records that memory does not hold until they are due: each of these is
	// decoded again, from the preceding entry on.
	lost  float64
	share float64 // share of a shard's records that an epoch has: less than 1 with a sample
	full  bool    // full shuffle
	// reopened means that not all decoders stay open, so that many pieces are decoded from the
	// preceding entry on.
	reopened bool
}

func (s *Sizes) entering() entering {
	lanes := float64(max(s.Order.Lanes, 1) * max(s.Places, 1))
	cache := float64(s.Limits.CacheBytes)
	// What decoders leave for records: at least half.
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

// enough reports whether the places in a shard are close enough, on average.
func (e *entering) enough(s *Shard) bool {
	decoded := float64(s.DecodedBytes)
	record := decoded / float64(s.Records)
	near := entryPieces * e.pieceBytes
	if s.Parts {
		near = max(near, e.partBytes)
	}
	if part := decoded / float64(max(s.EntryPoints, 1)); part <= near {
		// The shard was written with entry points at records, for reading from there; and for a
		// full shuffle a spool would have to hold everything.
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

// lostAgain returns about how often each byte of a shard of members and records of these sizes is
// decoded again for records that memory did not hold. Lc0's games of 1.4 MiB in a reservoir of 137
// MB were decoded 104 times with 256 MiB, 1.8 times with 384 MiB.
func (e *entering) lostAgain(memberBytes, recordBytes float64) float64 {
	return e.share * e.lost * (memberBytes/2 + max(e.pieceBytes, recordBytes)) / recordBytes
}
