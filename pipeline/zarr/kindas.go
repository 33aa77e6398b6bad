package zarr

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// kindAs describes how the elements of records are computed, with an entry for each array. For
// several cubes in which that differs it is a text instead: the SHA-256, in hex, of the distinct
// values as JSON, each followed by a newline, in the order of the cubes in which they first occur.
type kindAs struct {
	arrays []kindPacking
	mixed  string
}

func (a kindAs) MarshalJSON() ([]byte, error) {
	if a.mixed != "" {
		return plainJSON(a.mixed)
	}
	return plainJSON(a.arrays)
}

func (a *kindAs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &a.mixed)
	}
	return json.Unmarshal(b, &a.arrays)
}

// kindPacking is [descr, fill, scale, offset, missing] of an array: the type that elements are
// taken as, in the syntax of npy headers, the fill value before it is converted, and Packing's
// numbers. All numbers are little-endian and in hex.
type kindPacking struct {
	descr, fill, scale, offset string
	missing                    []string
}

func (p kindPacking) MarshalJSON() ([]byte, error) {
	return plainJSON([]any{p.descr, p.fill, p.scale, p.offset, p.missing})
}

func (p *kindPacking) UnmarshalJSON(b []byte) error {
	list := []any{&p.descr, &p.fill, &p.scale, &p.offset, &p.missing}
	n := len(list)
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != n {
		return fmt.Errorf("a conversion has %d entries, not %d", len(list), n)
	}
	return nil
}

// kind returns the entry of p and the fill value in a kind.
func (p *Packing) kind(fill string) kindPacking {
	bits := func(x float32) string {
		return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	}
	k := kindPacking{p.Type.Descr, fill, bits(p.Scale), bits(p.Offset), []string{}}
	for _, m := range p.Missing {
		k.missing = append(k.missing, hex.EncodeToString(m))
	}
	return k
}

// mixedAs returns the member of several cubes; nil if nothing is converted.
func mixedAs(list []*kindAs) *kindAs {
	var texts []string
	for _, a := range list {
		if a == nil {
			return nil
		}
		b, err := plainJSON(a)
		if text := string(b); err == nil && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return list[0]
	}
	var all bytes.Buffer
	for _, text := range texts {
		all.WriteString(text + "\n")
	}
	sum := sha256.Sum256(all.Bytes())
	return &kindAs{mixed: hex.EncodeToString(sum[:])}
}
