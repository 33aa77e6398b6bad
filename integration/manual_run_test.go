package integration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// notRun are commands of the README and the manual that other tests run (some of them in
// manual_growing_test.go), because they take long or need more than a mount.
var notRun = []string{"go run ./cmd/lsiofs demo", "integration/check", "lsiofs tune ", "lsiofs mount s3://", "lsiofs mount 'https://", "lsiofs cat s3://", "lsiofs cache ", "lsiofs doctor s3://", "lsiofs filter ",
	"lsiofs mount --grow /data/games", "lsiofs mount /data/sat.zip", "lsiofs mount /data/2018.json", "lsiofs mount '/data/*.json'", "lsiofs cat /data/games"}

// commandLines returns the lines of a text's blocks that are commands, as a person would type them
// one after another.
func commandLines(text string) (lines []string) {
	text = regexp.MustCompile(`(?m)^ +`).ReplaceAllString(text, "") // blocks in lists
	for _, language := range []string{"", "console", "bash"} {
		for _, block := range blocks(text, language) {
			for line := range strings.Lines(strings.ReplaceAll(block, "&&\n", "&& ")) {
				line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "  #")
				if regexp.MustCompile(`^(lsiofs|cp|tar|cat|ls|go|integration/check) ?`).MatchString(line) {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
		}
	}
	return lines
}

// TestCommandsInREADMEAndManualRun runs the commands in their blocks with bash, page by page, on a
// dataset and a mount of it.
func TestCommandsInREADMEAndManualRun(t *testing.T) {
	needFUSE(t)
	bash := need(t, "bash")
	bin := t.TempDir()
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(bin, "lsiofs")))
	d, source := plain(t, "tar", 4), plain(t, "tar", 24) // a mixture needs sources of more than 256 records
	sat := satellite(t)
	ran := 0
	for path, text := range documents(t) {
		lines := commandLines(text)
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return slices.ContainsFunc(notRun, func(not string) bool { return strings.HasPrefix(line, not) })
		})
		if len(lines) == 0 {
			continue
		}
		ran += len(lines)
		t.Run(filepath.Base(path), func(t *testing.T) {
			work, train, valid := t.TempDir(), t.TempDir(), t.TempDir()
			script := "set -e\ntrap 'code=$?; lsiofs umount --lazy /mnt/train || true; lsiofs umount --lazy /mnt/valid || true; lsiofs umount --lazy /mnt/sat || true; exit $code' EXIT\n" +
				"lsiofs mount /data/train /mnt/train --workers 4 --daemon\ncp /mnt/train/checkpoint a.json; cp a.json b.json\n"
			for _, line := range lines {
				if strings.HasPrefix(line, "lsiofs mount ") {
					fields := strings.Fields(line)
					point := fields[slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "/mnt/") })]
					script += "lsiofs umount " + point + " 2> /dev/null || true\n"
					line += " --daemon"
				}
				script += line + "\n"
			}
			// By then the page has mounted for seven workers.
			script = strings.NewReplacer("/data/train", d.dir, "/data/web", source.dir, "/data/code", source.dir, "/data/sat.zarr", sat, "/data/radar.zarr", sat, "/mnt/sat", t.TempDir(), "/mnt/train", train, "/mnt/valid", valid,
				"/var/lib/node_exporter/textfile", work, "5120,5119,5120,5118", "3,2,3,2,2,2,2", "from-20480", "from-100").Replace(script)
			r := command(t, nil, nil, bash, "-c", `cd "$0" && PATH="$1:$PATH" && eval "$2"`, work, bin, script)
			require.Zero(t, r.code, "%s\n%s\n%s", script, r.stdout, r.stderr)
			requireServersEnd(t)
		})
	}
	require.Greater(t, ran, 15)
}

// satellite makes an array of images with their times, like the manual's.
func satellite(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sat.zarr")
	times := encode.Array{Shape: []int64{84}, Chunk: []int64{84}, Object: []int64{84}, Dims: []string{"time"}, DataType: "int64", ItemBytes: 8}
	images := encode.Array{
		Shape: []int64{84, 192, 192}, Chunk: []int64{12, 64, 64}, Object: []int64{24, 128, 128}, Dims: []string{"time", "y", "x"},
		DataType: "int16", ItemBytes: 2, Codec: encode.BloscLZ4,
	}
	random := rand.NewChaCha8([32]byte{1})
	for name, a := range map[string]encode.Array{"time": times, "data": images} {
		require.NoError(t, a.Write(filepath.Join(dir, name), func(_ []int64, b []byte) bool {
			_, _ = random.Read(b)
			return true
		}))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zarr.json"), []byte(`{"zarr_format": 3, "node_type": "group"}`), 0o644))
	return dir
}
