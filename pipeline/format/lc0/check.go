package lc0

import (
	"encoding/binary"
	"math"
)

// Reasons for leaving out frames.
const (
	reasonFrameVersion = "the frame's version is not that of the game's first frame"
	reasonPolicy       = "the policy has a value that is not finite"
	reasonNoMove       = "the policy has no legal move"
	reasonValue        = "a value is not finite"
	reasonResult       = "the result is outside of -1 to 1"
)

const (
	moves         = 1858
	policyBytes   = 4 * moves
	planesBytes   = 8 * 104
	countersBytes = 8 // castling, side, rule 50, invariances, result
)

// values is the location of a version's numbers: 4 bytes each, counted from the end of the
// counters.
type values struct {
	policyAt int
	finite   []int // indexes of those that must be finite
	results  []int // indexes of those within -1 … 1; none: the counters' last byte is the result
}

var valuesOf = map[uint32]values{
	3: {policyAt: 4},
	4: {policyAt: 4, finite: []int{0, 1, 2, 3}},
	5: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6}},
	6: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17}, results: []int{7, 8}},
	7: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17}, results: []int{7, 8}},
}

// checkFrame returns why a frame is invalid, or "". It must have the size of that version.
func checkFrame(frame []byte, version uint32) string {
	if binary.LittleEndian.Uint32(frame) != version {
		return reasonFrameVersion
	}
	v := valuesOf[version]
	if reason := checkPolicy(frame[v.policyAt:][:policyBytes], version); reason != "" {
		return reason
	}
	counters := frame[v.policyAt+policyBytes+planesBytes:]
	rest := counters[countersBytes:]
	for _, i := range v.finite {
		if !finite(binary.LittleEndian.Uint32(rest[4*i:])) {
			return reasonValue
		}
	}
	if result := int8(counters[countersBytes-1]); len(v.results) == 0 && (result < -1 || result > 1) {
		return reasonResult
	}
	for _, i := range v.results {
		if r := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:])); r < -1 || r > 1 {
			return reasonResult
		}
	}
	return ""
}

// checkPolicy inspects two moves at a time: most are -1.
func checkPolicy(policy []byte, version uint32) string {
	const illegal = 0xbf800000bf800000
	legal := false
	for ; len(policy) >= 8; policy = policy[8:] {
		two := binary.LittleEndian.Uint64(policy)
		if two == illegal {
			continue
		}
		a, b := uint32(two), uint32(two>>32)
		if !finite(a) || !finite(b) {
			return reasonPolicy
		}
		legal = legal || isLegal(a, version) || isLegal(b, version)
	}
	if !legal {
		return reasonNoMove
	}
	return ""
}

// finite reports whether the bits of a float are those of a finite one.
func finite(bits uint32) bool { return bits&0x7f800000 != 0x7f800000 }

// isLegal reports whether a share is that of a legal move. Version 3 marks illegal moves only by 0.
func isLegal(bits, version uint32) bool {
	share := math.Float32frombits(bits)
	return share > 0 || share == 0 && version > 3
}
