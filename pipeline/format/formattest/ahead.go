package formattest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// room is a format.Room for that many members.
type room struct {
	members     int64
	taken, free atomic.Int64 // bytes, members
}

func newRoom(members int64) *room {
	r := &room{members: members}
	r.free.Store(members)
	return r
}

func (r *room) TryTake(bytes int64) bool {
	if r.free.Add(-1) < 0 {
		r.free.Add(1)
		return false
	}
	r.taken.Add(bytes)
	return true
}

func (r *room) Give(bytes int64) {
	r.taken.Add(-bytes)
	r.free.Add(1)
}

func (r *room) requireWhole(t require.TestingT) {
	require.Zero(t, r.taken.Load(), "room that was not given back")
	require.Equal(t, r.members, r.free.Load())
}

// ahead returns codec with members decoded ahead if it supports that.
func ahead(codec format.Codec) (format.Codec, *room) {
	r := newRoom(3)
	if m, ok := codec.(format.MemberCodec); ok {
		return format.Ahead{MemberCodec: m, InTurn: m, Room: r}, r
	}
	return codec, r
}

// decoding is everything that a decoder returns for a file.
type decoding struct {
	starts []int64
	parts  [][]byte
	err    error
}

// decode reads a file's members to the end, except for those for which skip returns true.
func decode(t require.TestingT, codec format.Codec, raw []byte, skip func(member int) bool) (all decoding) {
	d, err := codec.NewDecoder(bytes.NewReader(raw), 17)
	require.NoError(t, err)
	defer d.Close()
	for {
		at, err := d.Next()
		if err != nil {
			all.err = err
			return all
		}
		all.starts = append(all.starts, at)
		var r io.Reader = reader{d}
		if skip(len(all.starts)) {
			r = io.LimitReader(r, 2)
		}
		part, err := io.ReadAll(r)
		all.parts = append(all.parts, part)
		if err != nil {
			all.err = err
			return all
		}
	}
}

// RequireAheadAsInTurn requires that a codec decodes arbitrary bytes to the same result whether
// members are decoded ahead or in turn.
func RequireAheadAsInTurn(t require.TestingT, codec format.MemberCodec, raw []byte) {
	for members := range int64(3) {
		r := newRoom(members)
		requireAsInTurn(t, format.Ahead{MemberCodec: codec, InTurn: codec, Room: r}, codec, raw)
		r.requireWhole(t)
	}
}

func requireAsInTurn(t require.TestingT, codec, inTurn format.Codec, raw []byte) {
	for _, skip := range []func(int) bool{func(int) bool { return false }, func(n int) bool { return n%3 == 1 }} {
		want, got := decode(t, inTurn, raw, skip), decode(t, codec, raw, skip)
		require.Equal(t, want.starts, got.starts)
		require.Equal(t, want.err, got.err)
		require.Equal(t, len(want.parts), len(got.parts))
		for i := range want.parts {
			require.True(t, bytes.Equal(want.parts[i], got.parts[i]), "member %d", i)
		}
	}
}

// asInTurn compares on files of random members, some of which are damaged.
func (c CodecSuite) asInTurn(t *testing.T, inTurn format.Codec) {
	var members [][]byte
	for _, n := range []int{0, 1, 100, 5000, 200_000, 300_000} {
		members = append(members, c.Compress(text(n)))
	}
	rapid.Check(t, func(t *rapid.T) {
		var raw []byte
		for range rapid.IntRange(0, 12).Draw(t, "members") {
			if rapid.Bool().Draw(t, "between") {
				raw = append(raw, c.Between...)
			}
			raw = append(raw, rapid.SampledFrom(members).Draw(t, "member")...)
		}
		for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "damages") {
			if n := len(raw); n > 0 {
				at := rapid.IntRange(0, n-1).Draw(t, "at")
				switch rapid.IntRange(0, 2).Draw(t, "damage") {
				case 0:
					raw[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				case 1:
					raw = raw[:at]
				default:
					raw = slices.Delete(raw, at, min(n, at+rapid.IntRange(1, 50).Draw(t, "deleted")))
				}
			}
		}
		requireAsInTurn(t, c.Codec, inTurn, raw)
	})
}

// largeAsInTurn compares on members that are too large to be decoded ahead, either in the file or
// decoded.
func (c CodecSuite) largeAsInTurn(t *testing.T, inTurn format.Codec) {
	random := make([]byte, 5<<20)
	_, err := rand.NewChaCha8([32]byte{1}).Read(random)
	require.NoError(t, err)
	small := c.Compress(text(1000))
	raw := slices.Concat(small, c.Compress(make([]byte, 12<<20)), small, c.Compress(random), small, c.Compress(random[:3<<20]), small)
	requireAsInTurn(t, c.Codec, inTurn, raw)
	raw[len(raw)-len(small)-1<<20] ^= 1
	requireAsInTurn(t, c.Codec, inTurn, raw)
	for n := range 4 { // closed in the middle
		d, err := c.Codec.NewDecoder(bytes.NewReader(raw), 0)
		require.NoError(t, err)
		for range 2 * n {
			if _, err := d.Next(); err != nil {
				var damage *format.CorruptError
				require.True(t, err == io.EOF || errors.As(err, &damage))
			}
		}
		_, _ = d.Read(make([]byte, 100))
		d.Close()
	}
}
