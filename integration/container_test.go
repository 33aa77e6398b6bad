package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// podman is the engine with the flags that work inside a virtual machine or a container without
// cgroups, and a store of its own.
type podman struct {
	t    testing.TB
	args []string
}

func newPodman(t testing.TB) podman {
	t.Helper()
	needFUSE(t)
	if os.Getuid() != 0 {
		missing(t, "the container test makes a shared mount, which takes root")
	}
	need(t, "podman")
	store := serve.ShortDir(t) // podman only takes short paths
	p := podman{t, []string{
		"--storage-driver", "vfs", "--runtime", need(t, "runc"),
		"--root", filepath.Join(store, "root"), "--runroot", filepath.Join(store, "run"),
	}}
	t.Cleanup(func() { p.try("rm", "--all", "--force") })
	return p
}

// command returns the arguments of a call of podman.
func (p podman) command(args ...string) []string {
	return append(append([]string{}, p.args...), args...)
}

func (p podman) try(args ...string) result {
	p.t.Helper()
	return command(p.t, nil, nil, "podman", p.command(args...)...)
}

func (p podman) run(args ...string) []byte {
	p.t.Helper()
	return output(p.t, "podman", p.command(args...)...)
}

// image builds an image with one static program, from the example's Containerfile.
func (p podman) image(tag, pkg string) {
	p.t.Helper()
	dir := p.t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "lsiofs"), pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(p.t, err, "%s", text)
	file, err := filepath.Abs("../examples/container/Containerfile")
	require.NoError(p.t, err)
	p.run("build", "--network", "none", "-t", tag, "-f", file, dir)
}

// unprivileged returns the flags of a container that reads.
func unprivileged(shared string) []string {
	return []string{
		"run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"-v", shared + ":/mnt:rslave",
	}
}

// server starts the container that mounts, as in examples/container/README.md, and waits until the
// host sees the mount.
func (p podman) server(name, shared, data, index string, more ...string) (stop func()) {
	p.t.Helper()
	args := append([]string{
		"run", "--rm", "--name", name, "--network", "none", "--device", "/dev/fuse", "--cap-add", "SYS_ADMIN",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"-v", data + ":/data:ro", "-v", shared + ":/mnt:rshared", "-v", index + ":/index",
	}, more...)
	args = append(args, "lsiofs", "mount", "/data", "/mnt/stream", "--index-dir", "/index")
	log := serve.NewLog()
	cmd := exec.Command("podman", p.command(append(args, usual().flags()...)...)...)
	cmd.Stderr = log
	ended, err := serve.Launch(cmd)
	require.NoError(p.t, err)
	p.t.Cleanup(func() {
		p.try("kill", name)
		<-ended
	})
	point := filepath.Join(shared, "stream")
	until(p.t, ended, func() bool { return isLive(point) }, "the container's mount: %s", log)
	return func() {
		p.t.Helper()
		p.run("stop", "--time", "120", name)
		<-ended
		require.Zero(p.t, cmd.ProcessState.ExitCode(), log.String())
		require.False(p.t, isMount(point), "stopping the container unmounts")
	}
}

// isLive reports whether a mount of ours answers at point.
func isLive(point string) bool {
	if !isMount(point) {
		return false
	}
	_, err := os.Stat(filepath.Join(point, "status"))
	return err == nil
}

// sharedDirectory returns a directory whose mounts propagate between host and containers.
func sharedDirectory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "stream"), 0o755))
	output(t, "mount", "--bind", dir, dir)
	t.Cleanup(func() {
		for range mountsBelow(dir) {
			detach(filepath.Join(dir, "stream"))
		}
		detach(dir)
	})
	output(t, "mount", "--make-shared", dir)
	return dir
}

func TestExampleContainer(t *testing.T) {
	serve.Tier(t, serve.CI)
	serve.Alone(t)
	p := newPodman(t)
	p.image("lsiofs", "../cmd/lsiofs")
	p.image("reader", "./testdata/reader")
	d := plain(t, "tar", 9)
	s := usual()
	ref := newReference(t, d)
	shared, indexes := sharedDirectory(t), t.TempDir()

	for _, profile := range []struct {
		name   string
		flags  []string
		engine string
	}{
		{"the default profile forbids io_uring", nil, "pread"},
		{"a profile that allows io_uring", []string{"--security-opt", "seccomp=" + allowIOUring(t)}, "uring"},
	} {
		t.Run(profile.name, func(t *testing.T) {
			p.t = t
			stop := p.server("server", shared, d.dir, indexes, profile.flags...)
			requireFile(t, ref.data(s, 0), filepath.Join(shared, "stream/worker-0.tar"))

			read := p.run(append(unprivileged(shared), "reader", "/mnt/stream/worker-1.tar")...)
			require.Equal(t, fmt.Sprintf("%x\n", sha256.Sum256(ref.data(s, 1))), string(read), "a second container reads")
			shown := p.run(append(unprivileged(shared), "lsiofs", "checkpoint", "show", "--json", "/mnt/stream")...)
			records := len(ref.ids(s, 1))
			require.Equal(t, records, last(documentOf(t, shown).Done).Consumed[1])

			requireEngine(t, filepath.Join(shared, "stream"), profile.engine)
			stop()
		})
	}

	t.Run("a killed container does not block the next one", func(t *testing.T) {
		p.t = t
		p.server("killed", shared, d.dir, indexes)
		p.run("kill", "--signal", "KILL", "killed")
		until(t, nil, func() bool { return !isLive(filepath.Join(shared, "stream")) }, "the mount ends with its server")
		stop := p.server("next", shared, d.dir, indexes)
		requireFile(t, ref.data(s, 2), filepath.Join(shared, "stream/worker-2.tar"))
		stop()
	})
}

// requireEngine checks that status names the engine, and why it is not io_uring.
func requireEngine(t *testing.T, point, engine string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(point, "status"))
	require.NoError(t, err)
	require.Regexp(t, `(?i)\b`+engine+`\b`, string(b))
	if engine == "pread" {
		require.Regexp(t, `(?i)io_uring.*(ENOSYS|EPERM|not (implemented|permitted))`, string(b), "status says why")
	}
}

// allowIOUring makes the profile with the program from the example's README.
func allowIOUring(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/share/containers/seccomp.json"); err != nil {
		missing(t, "podman's default seccomp profile is not there: %v", err)
	}
	b, err := os.ReadFile("../examples/container/README.md")
	require.NoError(t, err)
	program := regexp.MustCompile(`(?s)<<'END'\n(.*?)END\n`).FindSubmatch(b)
	require.NotNil(t, program)
	profile := script(t, python(t), string(program[1]))
	require.True(t, json.Valid(profile))
	path := filepath.Join(t.TempDir(), "io-uring.json")
	require.NoError(t, os.WriteFile(path, profile, 0o644))
	return path
}
