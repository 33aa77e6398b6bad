package checkpoint

import (
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// A document of 16 MiB is the largest there is, and the control file asks after
// every write of it.
func BenchmarkPossible(b *testing.B) {
	many := make([]order.Done, 100)
	for i := range many {
		many[i] = interleaved(1, make([]uint64, 10_000)...)
	}
	doc := state(many...).Marshal(records)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Possible(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	s := state(interleaved(1, make([]uint64, 65536)...))
	b.SetBytes(int64(len(s.Marshal(records))))
	b.ReportAllocs()
	for b.Loop() {
		s.Marshal(records)
	}
}
