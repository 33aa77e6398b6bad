package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
)

// naiveKey and naiveMixture are a second implementation of the mixtures of order/SELECTION.md.
func naiveKey(domain string, seed, epoch, index uint64) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "lsiofs/1 %s %d %d %d", domain, seed, epoch, index))
	return binary.LittleEndian.Uint64(sum[:])
}

func naiveDraw(k, i uint64) uint64 {
	z := k + (i+1)*0x9E3779B97F4A7C15
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}

func naiveMixCounts(weights []uint64, n uint64) []uint64 {
	turn := make([]int, len(weights))
	rest := new(big.Int)
	for m, w := range weights {
		turn[m] = m
		rest.Add(rest, new(big.Int).SetUint64(w))
	}
	slices.SortStableFunc(turn, func(a, b int) int {
		return -big.NewInt(0).SetUint64(weights[a]).Cmp(new(big.Int).SetUint64(weights[b]))
	})
	left, c := new(big.Int).SetUint64(n), make([]uint64, len(weights))
	for _, m := range turn {
		less := new(big.Int).Sub(rest, new(big.Int).SetUint64(weights[m]))
		after := new(big.Int).Mul(left, less)
		after.Div(after, rest)
		c[m] = new(big.Int).Sub(left, after).Uint64()
		left, rest = after, less
	}
	return c
}

// naiveMixture returns source and index for each position of an epoch.
func naiveMixture(seed uint64, weights []uint64, epoch, length uint64) (places [][2]uint64) {
	for at := epoch * length; at < (epoch+1)*length; at++ {
		b := at / 256
		begin, end := naiveMixCounts(weights, 256*b), naiveMixCounts(weights, 256*b+256)
		var list []uint64
		for m := range weights {
			for range end[m] - begin[m] {
				list = append(list, uint64(m))
			}
		}
		for j, i := 255, 256*b; j > 0; j, i = j-1, i+1 {
			x, _ := bits.Mul64(naiveDraw(naiveKey("mix", seed, 0, 0), i), uint64(j+1))
			list[j], list[x] = list[x], list[j]
		}
		m, index := list[at%256], begin[list[at%256]]
		for _, other := range list[:at%256] {
			if other == m {
				index++
			}
		}
		places = append(places, [2]uint64{m, index})
	}
	return places
}
