package uring

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestMapReturnsZeroedAlignedMemoryOfRequestedSize(t *testing.T) {
	page := os.Getpagesize()
	for _, n := range []int{1, page - 1, page, page + 1, HugePageBytes - 1, HugePageBytes, HugePageBytes + 1, 5*HugePageBytes + 12345} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			p, err := Map(n)
			require.NoError(t, err)
			require.Len(t, p, n)
			require.Equal(t, n, cap(p))
			alignment := uintptr(page)
			if n >= HugePageBytes {
				alignment = HugePageBytes
			}
			require.Zero(t, uintptr(unsafe.Pointer(&p[0]))%alignment, "the address is a multiple of %d", alignment)
			require.Equal(t, make([]byte, n), p)
			for i := range p {
				p[i] = byte(i)
			}
			require.Equal(t, byte(n-1), p[n-1])
			require.NoError(t, Unmap(p))
		})
	}
}

func TestMapRefusesImpossibleSizes(t *testing.T) {
	for _, n := range []int{0, -1, 1 << 62, math.MaxInt} {
		_, err := Map(n)
		require.Error(t, err)
		require.Contains(t, err.Error(), strconv.Itoa(n)+" bytes")
	}
}

func TestUnmapReleasesAddressSpace(t *testing.T) {
	const rounds, size = 2000, 32*HugePageBytes + 1
	before := addressSpaceBytes(t)
	for range rounds {
		p, err := Map(size)
		require.NoError(t, err)
		require.NoError(t, Unmap(p[:0]), "a slice from the start is enough")
	}
	// If only the memory mapped for alignment leaked, that would be 4 GB; threads that the runtime
	// starts meanwhile take at most a few hundred MB.
	require.Less(t, addressSpaceBytes(t)-before, int64(rounds*HugePageBytes/2))
	require.NoError(t, Unmap(nil))
}

func TestMapRequestsHugePages(t *testing.T) {
	setting, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		t.Skipf("this kernel has no transparent huge pages: %v", err)
	}
	p, err := Map(4 * HugePageBytes)
	require.NoError(t, err)
	defer func() { require.NoError(t, Unmap(p)) }()
	require.Contains(t, flagsOfMapping(t, &p[0]), " hg", "transparent huge pages are set to %s", setting)
}

func addressSpaceBytes(t *testing.T) int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[0], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// flagsOfMapping returns the VmFlags of the mapping that contains p.
func flagsOfMapping(t *testing.T, p *byte) string {
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	address, inside := uint64(uintptr(unsafe.Pointer(p))), false
	for line := range bytes.Lines(smaps) {
		fields := strings.Fields(string(line))
		if first, last, isRange := strings.Cut(fields[0], "-"); isRange {
			from, err1 := strconv.ParseUint(first, 16, 64)
			to, err2 := strconv.ParseUint(last, 16, 64)
			if err1 == nil && err2 == nil {
				inside = from <= address && address < to
			}
		}
		if inside && fields[0] == "VmFlags:" {
			return " " + strings.Join(fields[1:], " ")
		}
	}
	t.Fatalf("no mapping holds %#x", address)
	return ""
}
