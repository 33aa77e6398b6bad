package zarr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Keep is the cut with crops left out of all orders: those whose bit in kept, a bit an ordinal and
// the lowest first, is 0. Ordinals and the place of each crop stay as they are. kept belongs to
// the result; nil keeps all.
func (c *Cut) Keep(kept []uint64) (*Cut, error) {
	n := *c
	n.kept = kept
	var err error
	n.kind, err = n.canonical()
	return &n, err
}

// Kept has a bit for each ordinal, the lowest first: whether the crop is in any order. nil: all are.
// It is not to be changed.
func (c *Cut) Kept() []uint64 { return c.kept }

// keptSum is the SHA-256 of the bits, ⌈Total/8⌉ bytes; "" where all are kept.
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

// mixedKept is that of several cubes: the SHA-256 of the lines that those of the cubes are, or ""
// where nothing is left out of any.
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

// NewReach makes a crop of a field for Reach.
func (c *Cut) NewReach(field int) *Crop {
	crop := c.NewCrop(field)
	if c.Jitters() {
		places := make([][]int64, len(c.fields[field].axes)) // of its own: they differ by record
		copy(places, crop.Places)
		crop.Places = places
	}
	return crop
}

// Reach makes crop, which NewReach has made, the elements that a record may have of a field in
// any epoch: those of the crop, and where origins move, of all crops that may come of that. s is
// where the record lies without jitter.
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
		default: // some in a row, and a gap
			for j := range a.Crop {
				for m := range room {
					crop.Places[d] = append(crop.Places[d], crop.Origin[d]+j*a.Step+m)
				}
			}
			crop.Step[d], crop.Count[d] = 1, a.Crop*room
		}
	}
}
