// Package servers runs real servers for tests: nginx, versitygw (an S3 server whose buckets are
// directories), fake-gcs-server (whose objects have URLs like Google's) and toxiproxy (which
// delays, cuts and breaks connections). Each listens on a free port of the loopback interface,
// belongs to the test that started it, and ends with it. integration/check installs the programs.
package servers

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Program finds a server's program, in PATH or where integration/check installs it. If it is
// missing it ends the test: it skips it with the reason, or fails it if nothing may be missing
// (CI=true).
func Program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if path, err := exec.LookPath(filepath.Join(moduleRoot(t), "integration", "servers", "bin", name)); err == nil {
		return path
	}
	reason := name + " is not there; integration/check installs what the tests use"
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and nothing may be missing: " + reason)
	}
	t.Skip(reason)
	return ""
}

// moduleRoot returns the nearest directory above the test's that has a go.mod.
func moduleRoot(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		require.NotEqual(t, above, dir, "the test runs outside of the module")
		dir = above
	}
}

// patience is how long a server may take to answer on a busy machine.
const patience = time.Minute

// start runs a server that listens on a port of 127.0.0.1, which is passed to command, and waits
// until it does. If another program takes the port first, start tries again with another one.
func start(t testing.TB, command func(port string) *exec.Cmd) (address string) {
	t.Helper()
	var said *output
	for range 10 {
		var ok bool
		address, said, ok = try(t, command)
		if ok {
			return address
		}
	}
	t.Fatalf("the server does not start: %s", said)
	return ""
}

func try(t testing.TB, command func(port string) *exec.Cmd) (address string, said *output, ok bool) {
	t.Helper()
	port := freePort(t)
	address = net.JoinHostPort("127.0.0.1", port)
	cmd := command(port)
	said = &output{}
	cmd.Stdout, cmd.Stderr = said, said
	// It ends with the tests, however they end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended, err := serve.Launch(cmd)
	require.NoError(t, err)
	err = serve.Until(patience, ended, func() bool { return listens(cmd.Process.Pid, port) })
	if errors.Is(err, serve.ErrExited) { // another program has the port
		return address, said, false
	}
	require.NoError(t, err, "%s does not listen: %s", cmd.Path, said)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said: %s", filepath.Base(cmd.Path), said)
		}
	})
	return address, said, true
}

func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// output is the end of a server's output.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// maxOutput bounds what is kept.
const maxOutput = 1 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.b.Len() > maxOutput {
		o.b.Reset()
	}
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Nginx serves the files of a directory over HTTP, and returns its URL, without a trailing slash.
// settings are directives of the server's block, such as `max_ranges 0;`.
func Nginx(t testing.TB, dir, settings string) (url string) {
	t.Helper()
	program, own := Program(t, "nginx"), t.TempDir()
	address := start(t, func(port string) *exec.Cmd {
		configuration := filepath.Join(own, "nginx.conf")
		require.NoError(t, os.WriteFile(configuration, []byte(nginxConfiguration(own, dir, port, settings)), 0o600))
		return exec.Command(program, "-p", own, "-c", configuration, "-e", "stderr")
	})
	return "http://" + address
}

func nginxConfiguration(own, dir, port, settings string) string {
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary += fmt.Sprintf("  %s_temp_path %s/%s;\n", kind, own, kind)
	}
	return fmt.Sprintf(`daemon off;
master_process off;
pid %s/pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
  access_log off;
  default_type application/octet-stream;
%s  server {
    listen 127.0.0.1:%s;
    root %q;
    %s
  }
}
`, own, temporary, port, dir, settings)
}

// The keys of Versitygw's only user.
const (
	AccessKey = "test"
	SecretKey = "testsecret"
)

// Versitygw serves buckets over S3, and returns its URL: the directories in dir are buckets, the
// files in them objects. dir must be on a file system with extended attributes.
func Versitygw(t testing.TB, dir string) (endpoint string) {
	t.Helper()
	program := Program(t, "versitygw")
	address := start(t, func(port string) *exec.Cmd {
		cmd := exec.Command(program, "--quiet", "--port", "127.0.0.1:"+port, "posix", dir)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
		return cmd
	})
	return "http://" + address
}

// WriteObject writes an object to a bucket's directory as Versitygw does, with an ETag. A file
// without one is identified by its modification time alone.
func WriteObject(t testing.TB, bucket, key string, content []byte) {
	t.Helper()
	path := filepath.Join(bucket, filepath.FromSlash(key))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// A new file, as for an upload: readers of the old one keep it.
	own, err := os.CreateTemp(bucket, ".upload-")
	require.NoError(t, err)
	_, err = own.Write(content)
	require.NoError(t, err)
	require.NoError(t, own.Close())
	require.NoError(t, unix.Setxattr(own.Name(), "user.etag", fmt.Appendf(nil, "\"%x\"", md5.Sum(content)), 0))
	require.NoError(t, os.Rename(own.Name(), path))
}
