package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandsOnRemotePageRun runs the commands about s3://bucket/train and the cache in the
// README and in the page about buckets, one after another, with such a bucket.
func TestCommandsOnRemotePageRun(t *testing.T) {
	needFUSE(t)
	bash := need(t, "bash")
	bin := t.TempDir()
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(bin, "lsiofs")))
	_, bucket, _ := places(t, plain(t, "tar", 4))
	ran := 0
	for _, page := range []string{readme(t), manual(t, "remote")} {
		for _, line := range commandLines(page) {
			if !strings.Contains(line, "s3://bucket/train") && !strings.HasPrefix(line, "lsiofs cache ") {
				continue
			}
			ran++
			work, point, cache, disk := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
			if strings.HasPrefix(line, "lsiofs mount ") {
				line = strings.Replace(line, "lsiofs mount", "lsiofs mount --daemon", 1) + " && ls /mnt/train/worker-0.tar && lsiofs umount /mnt/train"
			}
			line = strings.NewReplacer("lsiofs cache warm", "lsiofs cache warm --cache-reserve 0", "s3://bucket/train", bucket.dir, "/mnt/train", point, "/nvme/", disk+"/", "GiB", "MiB").Replace(line)
			line = regexp.MustCompile(`  +#.*`).ReplaceAllString(line, "")
			r := command(t, []string{"XDG_CACHE_HOME=" + cache}, nil, bash, "-c", `cd "$0" && PATH="$1:$PATH" && eval "$2"`, work, bin, line)
			require.Zero(t, r.code, "%s\n%s\n%s", line, r.stdout, r.stderr)
		}
	}
	requireServersEnd(t)
	require.GreaterOrEqual(t, ran, 4)
	require.True(t, slices.ContainsFunc(commandLines(readme(t)), func(line string) bool { return strings.HasPrefix(line, "lsiofs mount s3://") }))
}
