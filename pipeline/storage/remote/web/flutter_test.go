package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// One server makes new ETags each time, one is really two servers in turn, and one is correct. The
// first two are reported as what they are, at once, and can be read if size alone counts.
func TestServerWithUnstableVersions(t *testing.T) {
	for name, versions := range map[string]int64{"drawn anew": 1 << 40, "two in turn": 2, "one that was replaced": 0} {
		t.Run(name, func(t *testing.T) {
			var answers, replaced atomic.Int64
			url, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
				version := replaced.Load()
				if versions > 0 {
					version = answers.Add(1) % versions
				}
				file("ETag", fmt.Sprintf(`"v%d"`, version))(w, r)
			})
			for _, unversioned := range []bool{false, true} {
				source, err := Open(t.Context(), parse(t, url+"/x.tar"), Options{Unversioned: unversioned, Transport: transport(t, Settings{})})
				require.NoError(t, err)
				config := remote.DefaultConfig()
				config.Unversioned = unversioned
				s, err := remote.New(source, config)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				o, err := s.Stat(t.Context(), "x.tar")
				require.NoError(t, err)
				replaced.Add(1)
				before := len(asked.methods())
				read := func() error {
					got := make([]byte, 100)
					err := storage.ReadAt(t.Context(), s, o, got, 50)
					require.True(t, err != nil || bytes.Equal(content[50:150], got))
					return err
				}
				stream := func() error {
					body, err := s.OpenSequential(context.Background(), o, 0)
					require.NoError(t, err)
					defer func() { require.NoError(t, body.Close()) }()
					got, err := io.ReadAll(body)
					require.True(t, err != nil || bytes.Equal(content, got))
					return err
				}
				for range 2 { // two servers in turn may answer with the listed version
					for _, do := range []func() error{read, stream} {
						err := do()
						switch {
						case versions == 0:
							require.ErrorIs(t, err, storage.ErrChanged)
						case unversioned:
							require.NoError(t, err)
							now, err := s.Stat(t.Context(), "x.tar")
							require.NoError(t, err)
							require.Equal(t, o.SizeBytes, now.SizeBytes)
						case versions > 2 || err != nil:
							require.NotErrorIs(t, err, storage.ErrChanged)
							require.ErrorContains(t, err, "--unversioned")
							require.ErrorContains(t, err, "version")
						}
					}
				}
				require.Less(t, len(asked.methods())-before, 16)
				if _, _, cacheable := s.Identity(o); unversioned && versions > 2 {
					require.False(t, cacheable, "an object without a version is not cached")
				}
			}
		})
	}
}
