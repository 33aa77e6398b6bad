package pipeline

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// standing is a Source of which only the name matters.
type standing struct{ remote.Source }

func (standing) Close() error { return nil }

func (standing) Head(context.Context, string) (remote.Listed, error) { return remote.Listed{}, nil }

// Otherwise, a mount that is started at boot would fail once an earlier mount has stored a listing,
// even if the network is only some seconds late.
func TestLateServiceIsWaitedForIfCacheIsIncomplete(t *testing.T) {
	for name, c := range map[string]struct {
		after   time.Duration // time until it answers
		objects []remote.KnownObject
		waits   bool
	}{
		"nothing is cached":          {8 * time.Second, []remote.KnownObject{{Object: storage.Object{Path: "a", SizeBytes: 5}, Validator: `"v1"`}}, true},
		"the cache has all":          {8 * time.Second, []remote.KnownObject{{Object: storage.Object{Path: "a"}, Validator: `"v1"`}}, false},
		"and it answers soon enough": {time.Second, []remote.KnownObject{{Object: storage.Object{Path: "a"}, Validator: `"v1"`}}, true},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o700))
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			open := func(context.Context) (remote.Source, discover.Choice, error) {
				if time.Since(began) < c.after {
					return nil, discover.Choice{}, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
				}
				return standing{}, discover.Choice{Pattern: "new"}, nil
			}
			m := &mount{spec: spec.Spec{Cache: spec.Cache{Dir: dir}}, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
			l := &listed{Root: "https://host/d", Choice: discover.Choice{Pattern: "old"}, Known: remote.Known{Objects: c.objects}}
			var f found
			s, err := m.connect(t.Context(), remote.DefaultConfig(), l, open, &f)
			require.NoError(t, err, name)
			if c.waits {
				require.Nil(t, f.offline, name)
				require.Equal(t, standing{}, s, name)
				require.Equal(t, "new", f.choice.Pattern, name)
				return
			}
			require.Less(t, time.Since(began), c.after, name)
			require.Equal(t, l, f.offline.listed, name)
			require.Equal(t, "https://host/d", s.Name(), name)
			require.Equal(t, "old", f.choice.Pattern, name)
		})
	}
}

// Without a network, a service can't be reached for credentials, either. Other errors of
// credentials are reported as usual.
func TestUnreachableCredentialsCountAsNoResponse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	l := &listed{Root: "https://host/d", Known: remote.Known{Objects: []remote.KnownObject{{Object: storage.Object{Path: "a"}, Validator: `"v1"`}}}}
	for name, c := range map[string]struct {
		err     error
		offline bool
	}{
		"a role's":   {remote.Refuse("credentials of a role: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		"a reset":    {remote.Refuse("credentials of a role: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET}), false},
		"a process'": {remote.Refuse("credential_process: exit status 1"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &mount{spec: spec.Spec{Cache: spec.Cache{Dir: dir}}}
			var f found
			_, err := m.connect(t.Context(), remote.DefaultConfig(), l, func(context.Context) (remote.Source, discover.Choice, error) {
				return nil, discover.Choice{}, c.err
			}, &f)
			if !c.offline {
				require.ErrorIs(t, err, c.err, name)
				return
			}
			require.NoError(t, err, name)
			require.ErrorContains(t, f.offline.err, "credentials of a role", name)
		})
	}
}

func TestUnavailableServiceErrorNamesCache(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &mount{spec: spec.Spec{Cache: spec.Cache{Dir: filepath.Join(dir, "none")}}}
		l := &listed{Root: "https://host/d", Known: remote.Known{Objects: []remote.KnownObject{{Object: storage.Object{Path: "a", SizeBytes: 5}, Validator: `"v1"`}}}}
		_, err := m.connect(t.Context(), remote.DefaultConfig(), l, func(context.Context) (remote.Source, discover.Choice, error) {
			return nil, discover.Choice{}, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}, &found{})
		require.ErrorContains(t, err, "the disk cache has 0 of its 1 files")
	})
	require.NoDirExists(t, filepath.Join(dir, "none"))
}

// The service may be named only in a profile. If the profile changes to another service, the
// listing of the first must not be used for it.
func TestListingBelongsToOneService(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	config := filepath.Join(t.TempDir(), "config")
	t.Setenv("AWS_CONFIG_FILE", config)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	parsed, err := target.Parse("s3://bucket/train")
	require.NoError(t, err)
	file := func(lines string, o s3.Options) string {
		require.NoError(t, os.WriteFile(config, []byte("[default]\n"+lines), 0o600))
		_, at, err := s3.Locate(*parsed.Bucket, o)
		require.NoError(t, err)
		return (&mount{}).listingFile("/index", parsed, at)
	}
	first := file("endpoint_url = http://127.0.0.1:1\n", s3.Options{})
	seen := map[string]string{}
	for _, lines := range []string{
		"endpoint_url = http://127.0.0.1:1\n", "endpoint_url = http://127.0.0.1:2\n", "endpoint_url = https://127.0.0.1:1\n",
		"endpoint_url = http://127.0.0.1:1/path\n", "region = eu-west-1\n", "region = cn-north-1\n",
	} {
		at := file(lines, s3.Options{})
		require.Empty(t, seen[at], lines)
		seen[at] = lines
	}
	require.Equal(t, first, file("", s3.Options{Endpoint: "http://127.0.0.1:1"}))
}
