package zarr

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkCheckOverlap is the cost of checking a shard's places when a dataset is indexed, in
// addition to reading them.
func BenchmarkCheckOverlap(b *testing.B) {
	for _, order := range []string{"in order", "at random", "along a Morton curve"} {
		b.Run(fmt.Sprintf("bricks=4096/%s", order), func(b *testing.B) {
			places := make([]Place, 4096)
			perm := rand.New(rand.NewPCG(1, 1)).Perm(len(places))
			for i := range places {
				at := i
				switch order {
				case "at random":
					at = perm[i]
				case "along a Morton curve": // of 16·16·16
					at = 0
					for bit := range 4 {
						at |= i>>bit&1<<(3*bit) | i>>(4+bit)&1<<(3*bit+1) | i>>(8+bit)&1<<(3*bit+2)
					}
				}
				places[i] = Place{int64(at) * 1000, 1000}
			}
			for b.Loop() {
				if err := CheckOverlap(places); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
