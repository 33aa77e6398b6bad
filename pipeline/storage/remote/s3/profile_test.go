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

	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// Indentation is significant, as for Amazon's command line.
func TestProfilesAreParsedByIndentation(t *testing.T) {
	all, err := parseINI("\ufeff# a comment\n  [default]\n  Region = eu-west-1 # here\n  s3 =\n    max_queue_size = 5\n\n    endpoint_url = http://s3\n  output: json\n" +
		"[ profile  \"my lab\" ]\r\ncredential_process = keys 'a # b'\r\n; another\n[default]\nmore = x\n")
	require.NoError(t, err)
	require.Equal(t, "eu-west-1", all["default"].word("region"))
	require.Equal(t, "json", all["default"]["output"])
	require.Equal(t, "x", all["default"]["more"])
	require.Equal(t, section{"max_queue_size": "5", "endpoint_url": "http://s3"}, all["default"].nested("s3"))
	require.Equal(t, "keys 'a # b'", all["profile my lab"]["credential_process"])
	for _, text := range []string{"hunter2\n", "[default]\nhunter2\n", "key = hunter2\n", "[default\n"} {
		_, err := parseINI(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// The environment has precedence, then services of the profile, then the profile.
func TestServiceIsTakenFromProfiles(t *testing.T) {
	alone(t)
	configure(t, `[profile lab]
region = eu-west-1
endpoint_url = http://profile
services = local
[services local]
dynamodb =
  endpoint_url = http://other
s3 =
  endpoint_url = http://services
sqs =
  endpoint_url = http://another
[profile bare]
endpoint_url = http://bare
[profile ignoring]
endpoint_url = http://bare
ignore_configured_endpoint_urls = true
`, "")
	named := func() string {
		p, err := readProfile()
		require.NoError(t, err)
		at, err := locate(target.Bucket{Name: "bucket"}, Options{}, p)
		require.NoError(t, err)
		return at.name("x")
	}
	require.Equal(t, "s3://bucket/x", named())
	t.Setenv("AWS_DEFAULT_PROFILE", "lab")
	require.Equal(t, "s3+http://services/bucket/x", named())
	t.Setenv("AWS_PROFILE", "bare")
	require.Equal(t, "s3+http://bare/bucket/x", named())
	t.Setenv("AWS_ENDPOINT_URL", "http://all")
	require.Equal(t, "s3+http://all/bucket/x", named())
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://s3")
	require.Equal(t, "s3+http://s3/bucket/x", named())
	t.Setenv("AWS_PROFILE", "ignoring")
	require.Equal(t, "s3://bucket/x", named())
	t.Setenv("AWS_PROFILE", "lab")
	t.Setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
	require.Equal(t, "s3://bucket/x", named())
}

// Keys in one file are not mixed with those in another.
func TestKeysOfTwoFilesAreNotMixed(t *testing.T) {
	alone(t)
	configure(t, "[default]\naws_access_key_id = A\naws_secret_access_key = a\naws_session_token = t\nca_bundle = /some/file\n", "[default]\naws_access_key_id = B\naws_secret_access_key = b\n")
	p, err := readProfile()
	require.NoError(t, err)
	v, err := (&profiled{of: p}).Retrieve()
	require.NoError(t, err)
	require.Equal(t, []string{"B", "b", ""}, []string{v.AccessKeyID, v.SecretAccessKey, v.SessionToken})
	trust, err := Trust("")
	require.NoError(t, err)
	require.Equal(t, "/some/file", trust.CAFile)
	t.Setenv("AWS_CA_BUNDLE", "/other/file")
	trust, err = Trust("")
	require.NoError(t, err)
	require.Equal(t, "/other/file", trust.CAFile)
	trust, err = Trust("/flag")
	require.NoError(t, err)
	require.Equal(t, "/flag", trust.CAFile)
}

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
