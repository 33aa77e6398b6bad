package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// mostBytes is what cursors of these tests may hold.
const mostBytes = 4 << 20

// survive reads a file that may be damaged: rows, or an error that names the place; else it fails.
func survive(t *testing.T, name string, data []byte) {
	defer func() {
		if p := recover(); p != nil {
			path := filepath.Join(os.TempDir(), "parquet-panic")
			os.WriteFile(path, data, 0o600)
			t.Fatalf("%s: %v (the file is %s)\n%s", name, p, path, stack())
		}
	}()
	f, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		mustBePlaced(t, name, err, false)
		return
	}
	var items []rows.Item
	columns, err := rows.Resolve(f.Schema, items)
	if err != nil {
		mustBePlaced(t, name, err, false)
		return
	}
	s, err := f.Select(columns)
	require.NoError(t, err)
	c := s.NewCursor(bytes.NewReader(data), Options{MaxBytes: mostBytes})
	p := rows.NewJSONL(columns, 1<<20)
	var out []byte
	total := 0
	for g := range min(f.Groups(), 20) {
		s.Ranges(g)
		err := c.Open(g, Point{})
		for err == nil {
			var b *rows.Batch
			if b, err = c.Next(); err != nil {
				break
			}
			require.NoError(t, b.Check(columns), name)
			for r := range min(b.Rows, 200) {
				var damage error
				if out, damage = p.Append(out[:0], b, r, 0); damage != nil {
					_, isDamage := errors.AsType[*rows.DamageError](damage)
					_, isRefused := errors.AsType[*rows.RefusedError](damage)
					require.True(t, isDamage || isRefused, "%s: %v", name, damage)
				}
			}
			if total += b.Rows; total > 1e7 {
				break
			}
			c.Point()
		}
		if err != nil && err != io.EOF {
			mustBePlaced(t, name, err, true)
		}
		require.LessOrEqual(t, c.MemoryBytes(), int64(mostBytes))
	}
}

func stack() string {
	b := make([]byte, 4096)
	return string(b[:runtime.Stack(b, false)])
}

func mustBePlaced(t *testing.T, name string, err error, inGroup bool) {
	if d, ok := errors.AsType[*DamageError](err); ok {
		if inGroup {
			require.GreaterOrEqual(t, d.Group, 0, "%s: %v", name, err)
			require.NotEmpty(t, d.Column, "%s: %v", name, err)
		}
		return
	}
	_, ok := errors.AsType[*rows.RefusedError](err)
	require.True(t, ok, "%s: %T %v", name, err, err)
}

func mutateAll(t *testing.T, name string, data []byte, step int, draw *rand.Rand) {
	for at := 0; at < len(data); at += step {
		for _, v := range []byte{0, 0xff, data[at] + 1, data[at] - 1, data[at] ^ 0x80, byte(draw.Uint32())} {
			changed := bytes.Clone(data)
			changed[at] = v
			survive(t, fmt.Sprintf("%s: byte %d is %#x", name, at, v), changed)
		}
	}
	for at := 0; at < len(data); at += step {
		survive(t, fmt.Sprintf("%s: cut at %d", name, at), data[:at])
		survive(t, fmt.Sprintf("%s: without byte %d", name, at), append(bytes.Clone(data[:at]), data[at+1:]...))
	}
	for i := range 3000 / step {
		changed := bytes.Clone(data)
		for range 1 + draw.IntN(4) {
			changed[draw.IntN(len(data))] = byte(draw.Uint32())
		}
		survive(t, fmt.Sprintf("%s: draw %d", name, i), changed)
	}
}

// Every byte of small files is changed: there are rows, or an error with its place, and never a
// panic or more memory than is permitted.
func TestChangedBytes(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 1))
	paths, err := filepath.Glob("testdata/vectors/*.parquet")
	require.NoError(t, err)
	if dir := os.Getenv("LSIOFS_PARQUET_TESTING"); dir != "" {
		more, _ := filepath.Glob(filepath.Join(dir, "*", "*.parquet"))
		paths = append(paths, more...)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(data) < 20000 {
			mutateAll(t, filepath.Base(path), data, 1+len(data)/2000, draw)
		}
	}
}

func TestChangedBytesOfDrawnFiles(t *testing.T) {
	for seed := range uint64(25) {
		draw := rand.New(rand.NewPCG(seed, 31))
		data, _ := drawFile(draw)
		name := fmt.Sprintf("seed %d", seed)
		survive(t, name, data)
		for i := range 400 {
			changed := bytes.Clone(data)
			for range 1 + draw.IntN(3) {
				changed[draw.IntN(len(data))] = byte(draw.Uint32())
			}
			survive(t, fmt.Sprintf("%s, draw %d", name, i), changed)
		}
	}
}
