package fs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestExtensionsThatAreNoneForAStreamAreRefused(t *testing.T) {
	mountsNothing(t)
	for _, ext := range []string{".tar", ".jsonl", ".weiß", ".a b"} {
		require.NoError(t, checkExtension(ext))
	}
	for _, ext := range []string{".ids", ".offsets", ".\x1b[31m", ".\xff", ".a\nb", "." + strings.Repeat("x", 64)} {
		err := checkExtension(ext)
		require.ErrorContains(t, err, "rename the shards")
		require.NotContains(t, err.Error(), "\x1b")
	}
}

func TestFileNames(t *testing.T) {
	mountsNothing(t)
	for _, c := range []struct {
		name string
		want fileName
		ok   bool
	}{
		{"worker-0.tar", fileName{0, 0, stream.Data}, true},
		{"worker-3.ids", fileName{3, 0, stream.IDs}, true},
		{"worker-10-of-65536.offsets", fileName{10, 65536, stream.Offsets}, true},
		{"worker-0-of-1.tar", fileName{0, 1, stream.Data}, true},
		{name: "worker-5-of-4.tar"},
		{name: "worker-4-of-4.tar"},
		{name: "worker-0-of-0.tar"},
		{name: "worker-0-of-65537.tar"},
		{name: "worker-00.tar"},
		{name: "worker-01-of-4.tar"},
		{name: "worker-1-of-04.tar"},
		{name: "worker--1.tar"},
		{name: "worker-+1.tar"},
		{name: "worker-1.rec"},
		{name: "worker-1.tar.gz"},
		{name: "worker-1"},
		{name: "worker-.tar"},
		{name: "worker-1-of-.tar"},
		{name: "worker-1-of-2-of-3.tar"},
		{name: "worker-18446744073709551616.tar"},
		{name: "Worker-1.tar"},
		{name: ""},
	} {
		got, ok := parseFileName(c.name, ".tar")
		require.Equal(t, c.ok, ok, c.name)
		if ok {
			require.Equal(t, c.want, got, c.name)
			require.Equal(t, c.name, got.format(".tar"))
		}
	}
}

func TestEveryFileHasOneName(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		f := fileName{kind: rapid.SampledFrom(cropKinds).Draw(t, "kind")}
		if rapid.Bool().Draw(t, "dealt") {
			f.of = rapid.Uint64Range(1, 65536).Draw(t, "of")
			f.worker = rapid.Uint64Range(0, f.of-1).Draw(t, "worker")
		} else {
			f.worker = rapid.Uint64().Draw(t, "worker")
		}
		got, ok := parseFileName(f.format(".jsonl"), ".jsonl")
		if !ok || got != f {
			t.Fatalf("%+v is written %s and read %+v", f, f.format(".jsonl"), got)
		}
	})
}

func FuzzFileName(f *testing.F) {
	for _, s := range []string{"worker-0.tar", "worker-1-of-2.ids", "worker-007.tar", "epoch-1", "worker-1-of-1.offsets", "worker-1-of-1.crops.npy"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, ok := parseFileName(name, ".tar"); ok && got.format(".tar") != name {
			t.Fatalf("%q is read as %+v, which is written %q", name, got, got.format(".tar"))
		}
	})
}

func TestNumbersInNames(t *testing.T) {
	mountsNothing(t)
	for s, want := range map[string]uint64{"0": 0, "7": 7, "18446744073709551615": 1<<64 - 1} {
		n, ok := parseNumber(s)
		require.True(t, ok, s)
		require.Equal(t, want, n)
	}
	for _, s := range []string{"", "00", "01", "-1", "+1", " 1", "1 ", "1e3", "0x1", "1_000", "18446744073709551616", "٣"} {
		_, ok := parseNumber(s)
		require.False(t, ok, s)
	}
}

func TestScratchFilesMayNotResembleTreeFiles(t *testing.T) {
	mountsNothing(t)
	for _, name := range []string{"README", "checkpoint", "status", "worker-9.tar", "worker-x", "epoch-x", "from-1"} {
		require.False(t, scratchAllowed(name), name)
	}
	for _, name := range []string{".checkpoint.swp", "checkpoint~", "sedAbCdEf", "4913", "checkpoint.tmp", ".checkpoint.Xy12"} {
		require.True(t, scratchAllowed(name), name)
	}
}
