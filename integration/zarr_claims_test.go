package integration

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// zarray returns a version 2 document of an array of bytes.
func zarray(length, chunk int, more string) string {
	return fmt.Sprintf(`{"zarr_format": 2, "shape": [%d], "chunks": [%d], "dtype": "|u1", "fill_value": 0, "order": "C", %s}`, length, chunk, more)
}

// Stores made by hand are refused, or are EIO, with text that a terminal shows unchanged, and
// within the promised memory, whatever they claim.
func TestStoresWithFalseClaimsAreRefusedWithExplanation(t *testing.T) {
	frame := func(bytes uint64) string {
		return "\x28\xb5\x2f\xfd\xe0" + string(binary.LittleEndian.AppendUint64(nil, bytes)) + "\x01\x00\x00"
	}
	raw := `"compressor": null, "filters": null`
	file := func(at, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, at)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
	zipped := func(t *testing.T, dir string) {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for name, content := range map[string]string{".zarray": zarray(8, 8, raw), "0": "elements"} {
			m, err := w.CreateHeader(&zip.FileHeader{Name: name})
			require.NoError(t, err)
			_, err = m.Write([]byte(content))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		damaged := bytes.Replace(b.Bytes(), []byte("elements"), []byte("elemEnts"), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x.zip"), damaged, 0o644))
	}
	for name, c := range map[string]struct {
		make []func(t *testing.T, dir string)
		at   string
		says []string
	}{
		"half a gigabyte in a frame of 16 bytes": {[]func(*testing.T, string){
			file(".zarray", zarray(1<<29, 1<<29, `"compressor": {"id": "zstd"}, "filters": null`)), file("0", frame(1<<29)),
		}, "", []string{"decoding a chunk of the array (512 MiB, stored in 16 B) takes 512 MiB of memory", "use --memory "}},
		"sixteen megabytes in a frame of 16 bytes": {[]func(*testing.T, string){
			file(".zarray", zarray(1<<24, 1<<24, `"compressor": {"id": "zstd"}, "filters": null`)), file("0", frame(1<<24)),
		}, "", []string{": 0: chunk (0) at [0, 16): zstd: ", "copy the file again, or write it again"}},
		"fifteen codecs that compress": {[]func(*testing.T, string){
			file(".zarray", zarray(1<<29, 1<<29, `"compressor": {"id": "gzip"}, "filters": [`+strings.Repeat(`{"id": "gzip"},`, 13)+`{"id": "gzip"}]`)), file("0", "x"),
		}, "", []string{".zarray: filters: 15 codecs compress", "at most 2 are read"}},
		"a pipe as a chunk": {[]func(*testing.T, string){
			file(".zarray", zarray(8, 4, raw)), func(t *testing.T, dir string) { require.NoError(t, unix.Mkfifo(filepath.Join(dir, "1"), 0o600)) },
		}, "", []string{"/1: it is not a regular file", "remove it"}},
		"names that terminals act on": {[]func(*testing.T, string){
			file(".zgroup", `{"zarr_format": 2}`), file("a/.zarray", zarray(8, 8, raw)), file("a/.zattrs", `{"_ARRAY_DIMENSIONS": ["x\u001b[31m\n"]}`),
		}, "", []string{"a/.zarray: .zattrs._ARRAY_DIMENSIONS[0]: is \"x\\x1b[31m\\n\", which has characters that can't be shown: rename it"}},
		"a member of a zip file that is damaged": {[]func(*testing.T, string){zipped}, "x.zip", []string{"x.zip/0", "its bytes have the CRC-32 ", "copy it again"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "s.zarr")
			require.NoError(t, os.Mkdir(dir, 0o755))
			for _, do := range c.make {
				do(t, dir)
			}
			r := bounded(t, "cat", filepath.Join(dir, c.at), "--format", "zarr", "--memory", fmt.Sprint(hostileMemory), "--crop", "8", "--stride", "100000000")
			require.NotZero(t, r.code)
			for _, words := range c.says {
				require.Contains(t, r.stderr, words)
			}
			require.False(t, strings.ContainsFunc(r.stderr, func(c rune) bool { return c < ' ' && c != '\n' }), "%q", r.stderr)
		})
	}
}
