package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// seekable cuts bytes into frames of frameBytes decoded bytes, wherever records begin, followed by
// the table of the seekable format: a skippable frame 184D2A5E with the u32le sizes of each frame,
// in the file and decoded, and a footer with their number, flags and 8F92EAB1 (facebook/zstd,
// contrib/seekable_format).
func seekable(b []byte, frameBytes int) []byte {
	var out, table []byte
	frames := 0
	for ; len(b) > 0; frames++ {
		n := min(frameBytes, len(b))
		frame := zstdFrame(b[:n], true)
		out, b = append(out, frame...), b[n:]
		table = binary.LittleEndian.AppendUint32(table, uint32(len(frame)))
		table = binary.LittleEndian.AppendUint32(table, uint32(n))
	}
	table = binary.LittleEndian.AppendUint32(table, uint32(frames))
	table = binary.LittleEndian.AppendUint32(append(table, 0), 0x8f92eab1)
	out = binary.LittleEndian.AppendUint32(out, 0x184d2a5e)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(table)))
	return append(out, table...)
}

// lied returns a seekable file whose table is wrong everywhere.
func lied(b []byte, frameBytes int) []byte {
	out := seekable(b, frameBytes)
	frames := int(binary.LittleEndian.Uint32(out[len(out)-9:]))
	for i := range 8 * frames {
		out[len(out)-10-i] ^= 0x55
	}
	return out
}

// pzstd compresses with the program, whose frames have 2 MiB here.
func pzstd(t *testing.T, b []byte) []byte {
	cmd := exec.Command(need(t, "pzstd"), "-q", "-1", "-p", "2", "-c")
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

// If frames end inside records, reading can still start at each of them: nothing is spooled, hardly
// anything is decoded twice, and the bytes do not depend on the memory.
func TestFramesThatEndInsideRecordsNeedNoSpool(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range []struct {
		name, ext string
		compress  func(b []byte) []byte
	}{
		{"pzstd", ".zst", func(b []byte) []byte { return pzstd(t, b) }},
		{"seekable", ".zst", func(b []byte) []byte { return seekable(b, 100_000) }},
		{"a seekable table that lies", ".zst", func(b []byte) []byte { return lied(b, 100_000) }},
		{"lz4", ".lz4", func(b []byte) []byte {
			var out []byte
			for ; len(b) > 100_000; b = b[100_000:] {
				out = append(out, lz4Frame(b[:100_000], lz4.Block64Kb, true)...)
			}
			return append(out, lz4Frame(b, lz4.Block64Kb, false)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dataset{name: c.name, dir: t.TempDir(), ext: ".jsonl"}
			r := rand.New(rand.NewPCG(1, 1))
			decoded := 0
			for i := range 4 {
				var b []byte
				for line := 0; len(b) < 5<<20; line++ {
					b = fmt.Appendf(b, `{"shard": %d, "line": %d, "text": "`, i, line)
					for range 100 + r.IntN(5000) {
						b = append(b, "abcdefghijklmnop"[r.IntN(16)])
					}
					b = append(b, "\"}\n"...)
				}
				decoded += len(b)
				require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.jsonl%s", i, c.ext)), c.compress(b), 0o644))
			}
			ref := newReference(t, d)
			s := spoolSettings("reservoir")
			want := ref.data(s, 0)
			for _, memory := range []string{"1MiB", "12MiB", "64MiB"} {
				spool := spoolDir(t)
				m := mountDataset(t, d, s, "--memory", memory, "--spool-dir", spool)
				requireSameBytes(t, want, m.read("epoch-0/worker-0-of-1.jsonl"), "--memory %s", memory)
				stats := m.fetchStats()
				t.Logf("--memory %s: %.2f times decoded, by %s", memory, float64(stats.DecodedBytes)/float64(decoded), stats.Strategy)
				require.LessOrEqual(t, stats.DecodedBytes, uint64(4*decoded), memory)
				if memory == "1MiB" {
					continue // less than two lanes' decoders take
				}
				require.Equal(t, "scan", stats.Strategy, stats.Reason)
				require.Nil(t, stats.Spool)
				if memory == "12MiB" {
					require.Contains(t, string(m.read("status")), "decoding can start at ")
				}
			}
		})
	}
}
