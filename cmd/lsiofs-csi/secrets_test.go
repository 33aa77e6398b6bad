package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

const (
	accessKey = "AKIDLSIOFSTESTACCESS"
	secretKey = "not-to-be-seen-anywhere-7f3a"
)

// bucket serves a directory's shards as s3://train with versitygw, and returns its URL.
func bucket(t *testing.T, data string) (endpoint string) {
	t.Helper()
	gateway := program(t, "versitygw")
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "train"), 0o755))
	require.NoError(t, os.CopyFS(filepath.Join(root, "train"), os.DirFS(data)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	cmd := exec.Command(gateway, "--region", "us-east-1", "--port", address, "--quiet", "posix", root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	said := &log{}
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		return err == nil && c.Close() == nil
	}, patience, 1e7, "%s", said)
	return "http://" + address
}

func TestCredentialsReachOnlyServerEnvironment(t *testing.T) {
	data := dataset(t)
	endpoint := bucket(t, data)
	d := startDriver(t, "--allow-url", endpoint)
	keys := func(secret string) map[string]string {
		return map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
	}
	settings := map[string]string{"dataset": "s3://train/", "endpoint": endpoint}
	a, b := pod{name: "a", attributes: settings, secrets: keys(secretKey)}, pod{name: "b", attributes: settings, secrets: keys(secretKey)}
	wrong := pod{name: "wrong", attributes: settings, secrets: keys("wrong-and-not-to-be-seen-either")}

	err := d.publish(wrong)
	requireStatus(t, err, codes.FailedPrecondition, "SignatureDoesNotMatch", "look at AWS_SECRET_ACCESS_KEY")
	require.NotContains(t, err.Error(), "wrong-and-not")
	requireStatus(t, d.publish(pod{name: "none", attributes: settings}), codes.FailedPrecondition, "no credentials were found")
	requireStatus(t, d.publish(pod{name: "other", attributes: settings, secrets: map[string]string{"password": secretKey}}), codes.InvalidArgument, `"password"`, "AWS_ACCESS_KEY_ID")
	require.NoError(t, d.publish(a))
	require.NoError(t, d.publish(b))
	require.NoError(t, d.publish(a))
	require.Len(t, d.servers(), 1, "the same credentials share a server")
	want := stream(t, data)
	d.requireReads(a, "worker-0.jsonl", want)
	requireStatus(t, d.publish(pod{name: "none", attributes: settings}), codes.FailedPrecondition, "no credentials were found")

	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.servers()[0]))
	require.NoError(t, err)
	require.Contains(t, string(environment), "AWS_SECRET_ACCESS_KEY="+secretKey)
	d.requireNowhere(secretKey, "wrong-and-not")

	// A server that died with the driver waits for its credentials.
	d.kill()
	pid := d.servers()[0]
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return len(d.servers()) == 0 }, patience, 1e6)
	d.start()
	d.until(func() bool { return strings.Contains(d.log.String(), "needs its credentials") })
	_, err = d.read(b, "worker-0.jsonl")
	require.Error(t, err)
	require.NoError(t, d.publish(a))
	d.requireReads(a, "worker-0.jsonl", want)
	d.requireReads(b, "worker-0.jsonl", want)
	d.requireNowhere(secretKey, "wrong-and-not")
	d.unpublish(a)
	d.unpublish(b)
	d.requireNothingLeft()
}

// requireNowhere checks that secrets are not in the arguments of any process, in logs, or in files
// that the driver has made.
func (d *driver) requireNowhere(secrets ...string) {
	d.t.Helper()
	texts := map[string]string{"the log": d.log.String()}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(d.t, err)
	for _, dir := range []string{"state", "cache", "registration"} {
		require.NoError(d.t, filepath.WalkDir(d.path(dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				paths = append(paths, path)
			}
			return err
		}))
	}
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil { // otherwise the process has ended
			texts[path] = string(b)
		}
	}
	require.Greater(d.t, len(texts), 3)
	for path, text := range texts {
		for _, s := range secrets {
			require.NotContains(d.t, text, s, path)
		}
	}
}
