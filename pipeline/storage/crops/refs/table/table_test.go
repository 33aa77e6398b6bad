package table

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys and inline bytes take many slabs, and are added in random order.
func TestTableOfManySlabsContainsAddedEntries(t *testing.T) {
	const count = 3*slabEntries + 7
	b := NewBuilder(true, 1<<30)
	place := func(i, version int) Place {
		if i%1000 == 0 {
			return Place{Kind: Inline, Bytes: bytes.Repeat([]byte{byte(i), byte(version)}, i)}
		}
		return Place{Kind: Range, File: i % 3, Offset: int64(i), Size: int64(version)}
	}
	add := func(i, version int) {
		require.NoError(t, b.Add(fmt.Appendf(nil, "a/%d", i), place(i, version), fmt.Sprint("f", i%3)))
	}
	b.names(t)
	for i := range count {
		add(i*7919%count, 1)
	}
	for i := 0; i < count; i += 500 {
		add(i, 2)
	}
	got, err := b.Table()
	require.NoError(t, err)
	require.Equal(t, count, got.Len())
	for i := range count {
		n, found := got.Find(fmt.Sprintf("a/%d", i))
		require.True(t, found)
		version := 1
		if i%500 == 0 {
			version = 2
		}
		want, have := place(i, version), got.Place(n)
		require.True(t, want.Kind == have.Kind && want.Offset == have.Offset && bytes.Equal(want.Bytes, have.Bytes) && (want.Kind == Inline || want.Size == have.Size && want.File == have.File), "%d: %v", i, have)
		if n > 0 {
			require.Less(t, got.Key(n-1), got.Key(n))
		}
	}
}

// names adds the files f0, f1 and f2, in this order.
func (b *Builder) names(t *testing.T) {
	for i := range 3 {
		require.NoError(t, b.Add(fmt.Appendf(nil, "b/%d", i), Place{Kind: Range}, fmt.Sprint("f", i)))
	}
	b.t.list.cut(0)
}

func TestTableStaysWithinItsBound(t *testing.T) {
	for name, add := range map[string]func(b *Builder, i int) error{
		"keys": func(b *Builder, i int) error { return b.Add(fmt.Appendf(nil, "a/%d", i), Place{Kind: Whole}, "f") },
		"files": func(b *Builder, i int) error {
			return b.Add(fmt.Appendf(nil, "a/%d", i), Place{Kind: Whole}, fmt.Sprint("f", i))
		},
		"bytes": func(b *Builder, i int) error {
			return b.Add(fmt.Appendf(nil, "a/%d", i), Place{Kind: Inline, Bytes: make([]byte, 3<<10)}, "")
		},
	} {
		b := NewBuilder(false, 4<<20)
		var err error
		i := 0
		for ; err == nil && i < MaxKeys; i++ {
			err = add(b, i)
		}
		require.ErrorIs(t, err, ErrMemory, name)
		require.Greater(t, i, 1000, name)
		require.LessOrEqual(t, b.t.HeldBytes(), int64(4<<20+2*slabBytes), name)
	}
	b := NewBuilder(false, 4<<20)
	for i := range 1000 {
		require.NoError(t, b.Add(fmt.Appendf(nil, "a/%d", i), Place{Kind: Whole}, fmt.Sprint("f", i)))
	}
	require.ErrorIs(t, b.Rename(func(name string) (string, error) { return string(bytes.Repeat([]byte("x"), 3<<10)) + name, nil }), ErrMemory)
}

func TestKeyIsNotADirectoryOfAnother(t *testing.T) {
	for _, keys := range [][]string{{"a", "a/b"}, {"a/b/c/d", "a-b", "a/b"}, {"x", "a/b", "a/b-c", "a/b/c", "a/b/d/e"}} {
		for _, reverse := range []bool{false, true} {
			b := NewBuilder(false, 1<<20)
			if reverse {
				slices.Reverse(keys)
			}
			for _, key := range keys {
				require.NoError(t, b.Add([]byte(key), Place{Kind: Whole}, "f"))
			}
			_, err := b.Table()
			require.ErrorContains(t, err, "both an object and a directory")
		}
	}
	b := NewBuilder(false, 1<<20)
	for _, key := range []string{"a/b", "a-b", "b/c/d", "b/c-d"} {
		require.NoError(t, b.Add([]byte(key), Place{Kind: Whole}, "f"))
	}
	_, err := b.Table()
	require.NoError(t, err)
}
