package probe

import (
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// enough is the share of the best rate that counts as equally good: repeated measurements of one
// link differ by that much.
const enough = 0.9

// Derive returns the profile that follows from the measurements, and the reasons for users. It is
// pure; cells must not be empty.
//
// Requests cost money and time, so large ranges are split as little as possible: ReadBytes is the
// default, or more if nothing up to that size is fast enough, or less if larger ranges were
// measured and are slower. Depth is the smallest with which ranges of the smallest size reach their
// best rate, and InFlightBytes the smallest with which any combination reached the best rate.
func Derive(kind profile.Kind, cells []profile.Cell, now time.Time) (p profile.Profile, why []string) {
	p = profile.Defaults(kind)
	p.Tuned = now
	best, smallest, measured := cells[0], cells[0].ReadBytes, int64(0)
	for _, c := range cells {
		if c.BytesPerSecond > best.BytesPerSecond {
			best = c
		}
		smallest, measured = min(smallest, c.ReadBytes), max(measured, c.ReadBytes)
	}
	why = append(why, fmt.Sprintf("the most was %.0f MB/s, with ranges of %s, %d at a time", best.BytesPerSecond/1e6, size(best.ReadBytes), best.Depth))

	least, most, inFlight := best.ReadBytes, best.ReadBytes, best.ReadBytes*int64(best.Depth)
	for _, c := range cells {
		if c.BytesPerSecond >= enough*best.BytesPerSecond {
			least, most = min(least, c.ReadBytes), max(most, c.ReadBytes)
			inFlight = min(inFlight, c.ReadBytes*int64(c.Depth))
		}
	}
	switch {
	case most >= p.ReadBytes:
		p.ReadBytes = max(p.ReadBytes, least)
	case most < measured:
		p.ReadBytes = most
	}
	fast := fmt.Sprintf("ranges of %s to %s are about as fast", size(least), size(most))
	if least == most {
		fast = fmt.Sprintf("ranges of other sizes than %s are slower", size(least))
	}
	why = append(why, fmt.Sprintf("%s: reads of up to %s are one request", fast, size(p.ReadBytes)))

	small := shallowest(cells, smallest)
	p.Depth = small.Depth
	why = append(why, fmt.Sprintf("ranges of %s reach %.0f MB/s with %d at a time, and little more with more", size(smallest), small.BytesPerSecond/1e6, small.Depth))
	p.InFlightBytes = min(max(inFlight, 4*p.ReadBytes, leastInFlight), profile.Defaults(kind).InFlightBytes)
	return p, why
}

// leastInFlight keeps a measurement of a brief moment from making readers slow: 64 MiB are 0.6 s of
// a link of 1 Gbit/s.
const leastInFlight = 64 << 20

// shallowest returns the cell of a size with the smallest depth that reaches enough of the size's
// best rate.
func shallowest(cells []profile.Cell, readBytes int64) (found profile.Cell) {
	best := 0.0
	for _, c := range cells {
		if c.ReadBytes == readBytes {
			best = max(best, c.BytesPerSecond)
		}
	}
	for _, c := range cells {
		if c.ReadBytes == readBytes && c.BytesPerSecond >= enough*best && (found.Depth == 0 || c.Depth < found.Depth) {
			found = c
		}
	}
	return found
}

func size(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
