package zarr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Keep returns the cut without some crops, which are left out of all orders: those whose bit in
// kept is 0. kept has a bit for each ordinal, lowest first. Ordinals and the place of each crop
// stay the same. The result owns kept; nil keeps all crops.
func (c *Cut) Keep(kept []uint64) (*Cut, error) {
	n := *c
	n.kept = kept
	var err error
	n.kind, err = n.canonical()
	return &n, err
}

// Kept has a bit for each ordinal, lowest first, that is set if the crop is in the orders; nil: all
// are. It must not be modified.
func (c *Cut) Kept() []uint64 { return c.kept }

// keptSum returns the SHA-256 of the bits, ⌈Total/8⌉ bytes; "" if all are kept.
func (c *Cut) keptSum() string {
	if c.kept == nil {
		return ""
	}
	h := sha256.New()
	var b [8]byte
	for left := (c.Total() + 7) / 8; left > 0; {
		binary.LittleEndian.PutUint64(b[:], c.kept[((c.Total()+7)/8-left)/8])
		n := min(left, 8)
		h.Write(b[:n])
		left -= n
	}
	return hex.EncodeToString(h.Sum(nil))
}

// mixedKept is keptSum of several cubes: the SHA-256 of a line with the sum of each cube, or "" if
// no cube leaves anything out.
func mixedKept(kinds []kindText) string {
	var lines strings.Builder
	any := false
	for _, k := range kinds {
		lines.WriteString(k.Kept + "\n")
		any = any || k.Kept != ""
	}
	if !any {
		return ""
	}
	sum := sha256.Sum256([]byte(lines.String()))
	return hex.EncodeToString(sum[:])
}

// NewReach returns a crop of a field for Reach.
func (c *Cut) NewReach(field int) *Crop {
	crop := c.NewCrop(field)
	if c.Jitters() {
		places := make([][]int64, len(c.fields[field].axes)) // a slice of its own, because the places differ by record
		copy(places, crop.Places)
		crop.Places = places
	}
	return crop
}

// Reach sets crop, which NewReach returned, to all elements of a field that a record may use in any
// epoch: the elements of the crop or, if origins move, of all crops that jitter can make of it. s
// is the record's place without jitter.
func (c *Cut) Reach(field int, crop *Crop, s *Spot) {
	c.Place(field, crop, s)
	if !c.Jitters() {
		return
	}
	f := &c.fields[field]
	for d, of := range f.of {
		a := &f.axes[d]
		if of < 0 || f.places != nil && f.places[d] != nil {
			continue
		}
		room := c.axes[of].room(s.Origin[of])
		crop.Places[d] = crop.Places[d][:0]
		switch {
		case a.Step <= room:
			crop.Places[d], crop.Step[d], crop.Count[d] = nil, 1, (a.Crop-1)*a.Step+room
		case room == 1:
			crop.Places[d], crop.Step[d], crop.Count[d] = nil, a.Step, a.Crop
		default: // runs with gaps between them
			for j := range a.Crop {
				for m := range room {
					crop.Places[d] = append(crop.Places[d], crop.Origin[d]+j*a.Step+m)
				}
			}
			crop.Step[d], crop.Count[d] = 1, a.Crop*room
		}
	}
}
