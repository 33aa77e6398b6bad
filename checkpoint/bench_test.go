package checkpoint

import (
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// BenchmarkPossible checks a document of about the maximum size, 16 MiB, as the control file does
// after every write.
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
