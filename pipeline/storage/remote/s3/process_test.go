package s3

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
)

// The words are those that Python's shlex.split returns, which Amazon's command line uses.
func TestCredentialProcessIsSplitLikeShellWords(t *testing.T) {
	for command, want := range map[string][]string{
		`keys`:                           {"keys"},
		"  keys\t--role  x ":             {"keys", "--role", "x"},
		`"/with space/keys" 'a b'`:       {"/with space/keys", "a b"},
		`/with\ space/keys a\"b`:         {"/with space/keys", `a"b`},
		`keys "a\"b" "a\\b" "a\b" 'a\b'`: {"keys", `a"b`, `a\b`, `a\b`, `a\b`},
		`keys --x="a b"'c d'e`:           {"keys", "--x=a bc de"},
		`keys "" ''`:                     {"keys", "", ""},
		`keys $HOME ~ #x`:                {"keys", "$HOME", "~", "#x"},
	} {
		got, err := splitWords(command)
		require.NoError(t, err, command)
		require.Equal(t, want, got, command)
	}
	for _, command := range []string{"", " ", `keys "`, `keys 'a`, `keys \`, `"" x`} {
		_, err := splitWords(command)
		require.Error(t, err, command)
	}
}

// Everything that a process has started ends with it, when it is not waited for any more.
func TestAbandonedCredentialProcessIsKilledWithItsChildren(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	p := &process{command: "/bin/sh -c 'sleep 1000 & echo $! > " + file + ".new; mv " + file + ".new " + file + "; echo look at the browser >&2; wait'"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.RetrieveWithCredContext(&credentials.CredContext{Context: ctx})
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil && p.said.last() != "" }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorContains(t, <-ended, "it did not end in time: context canceled: it says: look at the browser")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, time.Minute, time.Millisecond)
}

// gone reports whether a process has ended. It may stay a zombie if there is no init that reaps it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// Sources that share credentials, one after another and concurrently, make one search.
func TestSourcesSharingCredentialsSearchOnce(t *testing.T) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	log := filepath.Join(t.TempDir(), "log")
	configure(t, `[default]
credential_process = /bin/sh -c 'echo x >> `+log+`; echo "{\"Version\": 1, \"AccessKeyId\": \"KEY\", \"SecretAccessKey\": \"x\"}"'
`, "")
	shared, err := NewCredentials(time.Minute)
	require.NoError(t, err)
	for range 3 {
		src, _, err := Open(t.Context(), bucket(t, "s3://bucket/"), Options{Region: "eu-west-1", Credentials: shared, Transport: transport(t)})
		require.NoError(t, err)
		for range 2 {
			who, err := src.Identity(t.Context())
			require.NoError(t, err)
			require.Equal(t, `credential_process of profile "default"`, who.From)
		}
		require.NoError(t, src.Close())
	}
	shared.Close()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(text))
}
