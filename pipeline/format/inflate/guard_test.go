package inflate

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// guarded maps memory of n bytes or more between two guard pages. Each use must be at its end or at
// its beginning.
func guarded(t testing.TB, n int) []byte {
	t.Helper()
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	require.NoError(t, unix.Mprotect(m[:page], unix.PROT_NONE))
	require.NoError(t, unix.Mprotect(m[page+size:], unix.PROT_NONE))
	return m[page : page+size]
}

// guardedDecoder returns a Decoder with a guard page after its window, which kills the program when
// it is accessed.
func guardedDecoder(t testing.TB) *Decoder {
	size := int(unsafe.Sizeof(Decoder{}))
	m := guarded(t, size)
	d := (*Decoder)(unsafe.Pointer(&m[len(m)-size]))
	require.Equal(t, unsafe.Sizeof(Decoder{}), unsafe.Offsetof(d.window)+unsafe.Sizeof(d.window), "the window is what comes last")
	return d
}

// Nothing is read or written beyond input and window, whatever the input: intact, damaged, random,
// with tables of earlier streams, in parts of any size, and with history up to any byte.
func TestNothingBeyondInputAndWindowIsTouched(t *testing.T) {
	d := guardedDecoder(t)
	all := append(streams(t, 100_000), streams(t, 3000)...)
	room := guarded(t, 200_000)
	history := data["text"](rand.New(rand.NewPCG(1, 1)), historyBytes)
	r := rand.New(rand.NewPCG(11, 12))
	damaged, refused := 0, 0
	for i := range 3 * len(all) {
		s := all[i%len(all)]
		if len(s.raw) > len(room) {
			continue
		}
		raw := bytes.Clone(s.raw)
		if i >= len(all) {
			damaged++
			for range 1 + r.IntN(3) {
				raw[r.IntN(len(raw))] ^= 1 << r.IntN(8)
			}
		}
		n := historyBytes
		if i < len(all) {
			n = r.IntN(historyBytes + 1)
		}
		d.ResetAt(history[:n], 0)
		var got []byte
		status := Input
		for at := 0; status != End && status != Bad; {
			// The part ends at a guard page, or begins at one.
			size := min(len(raw)-at, 1+r.IntN(50_000))
			in := room[len(room)-size:]
			if r.IntN(2) == 0 {
				in = room[:size:size]
			}
			copy(in, raw[at:])
			var used int
			used, status = d.Decode(in)
			require.LessOrEqual(t, used, size)
			at += used
			got = append(got, d.Window()...)
			d.Take(len(d.Window()))
			if status == Input && at+size >= len(raw) && used == 0 {
				break
			}
			if len(got) > 40<<20 {
				break // more than 1000 times the original: a match of a match
			}
		}
		if i < len(all) {
			require.Equal(t, End, status, s.name)
			require.True(t, bytes.Equal(s.decoded, got), s.name)
		} else if status != End {
			refused++
		}
	}
	require.Greater(t, damaged, 100)
	require.Greater(t, refused, 10)
}
