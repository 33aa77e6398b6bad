package order

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// gamma is the distance between the states of two successive draws.
const gamma = 0x9E3779B97F4A7C15

// key returns the key that ORDER.md defines under "Random numbers".
func key(domain string, seed, epoch, index uint64) uint64 {
	text := make([]byte, 0, 96)
	text = append(text, "lsiofs/1 "...)
	text = append(text, domain...)
	for _, n := range [...]uint64{seed, epoch, index} {
		text = append(text, ' ')
		text = strconv.AppendUint(text, n, 10)
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:])
}

// mix is SplitMix64's finalizer.
func mix(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}

// draw returns the i-th draw of a key.
func draw(k, i uint64) uint64 { return mix(k + (i+1)*gamma) }

// below returns the i-th draw of a key, scaled to 0 … n-1.
func below(k, i, n uint64) uint64 {
	high, _ := bits.Mul64(draw(k, i), n)
	return high
}

// permute shuffles a with the draws base, base+1, … of k.
func permute[E any](a []E, k, base uint64) {
	i := base
	for j := len(a) - 1; j >= 1; j-- {
		other := below(k, i, uint64(j)+1)
		a[j], a[other] = a[other], a[j]
		i++
	}
}

// ID returns the shard part of a record's identity: the first 8 bytes of SHA-256 over `lsiofs/1
// shard <path>`, as a big-endian number. A record's ID is this number followed by the record's
// ordinal in the shard, each as 8 bytes big-endian.
func ID(path string) uint64 {
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + path))
	return binary.BigEndian.Uint64(sum[:])
}
