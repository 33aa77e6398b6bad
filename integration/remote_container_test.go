package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// The example's image streams a bucket to a pipe, without any privilege: the same bytes as from a
// directory.
func TestExampleRemoteContainerStreamsFromBucket(t *testing.T) {
	serve.Tier(t, serve.CI)
	serve.Alone(t)
	p := newPodman(t)
	const certificates = "/etc/ssl/certs/ca-certificates.crt"
	if _, err := os.Stat(certificates); err != nil {
		missing(t, "%s is not there", certificates)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "lsiofs"), "../cmd/lsiofs")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	output(t, "cp", certificates, dir)
	file, err := filepath.Abs("../examples/remote/Containerfile")
	require.NoError(t, err)
	p.run("build", "--network", "none", "-t", "lsiofs-remote", "-f", file, dir)

	here, bucket, _ := places(t, plain(t, "tar", 4))
	want := toolOK(t, "cat", here.dir, "--worker", "0/4")
	got := p.run("run", "--rm", "--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"--env", "AWS_ACCESS_KEY_ID", "--env", "AWS_SECRET_ACCESS_KEY", "--env", "AWS_ENDPOINT_URL", "-v", t.TempDir()+":/index",
		"lsiofs-remote", "cat", bucket.dir, "--index-dir", "/index", "--worker", "0/4")
	requireSameBytes(t, want, got, "the container")
}
