package pinned

import "fmt"

// Sequence is the list of records that a reader reads: one worker's stream. Implementations are
// safe for concurrent use.
type Sequence interface {
	// Len returns the number of records.
	Len() uint64
	// Records fills dst with the numbers of records k, k+1, …, and returns how many there were.
	Records(k uint64, dst []uint64) int
}

// Epochal is implemented by sequences of a numbered epoch. Storages whose bytes depend on the epoch
// are told its number (storage.Read.Epoch).
type Epochal interface{ Epoch() uint64 }

// EpochOf returns the epoch of a sequence; 0 if it has none.
func EpochOf(seq Sequence) uint64 {
	if e, ok := seq.(Epochal); ok {
		return e.Epoch()
	}
	return 0
}

// Clip returns how many of the records k … k+n-1 a sequence has, and an error if it has none of
// them.
func Clip(seq Sequence, k uint64, n int) (int, error) {
	total := seq.Len()
	if n <= 0 || k >= total {
		return 0, fmt.Errorf("lend %d records from %d on: the sequence has %d", n, k, total)
	}
	return int(min(uint64(n), total-k)), nil
}
