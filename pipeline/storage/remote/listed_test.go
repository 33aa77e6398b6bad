package remote

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestOnlyTransientErrorsCountAsNoResponse(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		unanswered bool
	}{
		"refused":        {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		"no such host":   {&net.DNSError{IsNotFound: true}, true},
		"a reset":        {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		"500":            {&StatusError{Status: 500}, true},
		"503":            {&StatusError{Status: 503}, true},
		"401":            {&StatusError{Status: 401}, false},
		"403":            {&StatusError{Status: 403}, false},
		"404":            {&StatusError{Status: 404}, false},
		"a refusal":      {Refuse("it is not right"), false},
		"nothing listed": {ErrNoListing, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := Try(t.Context(), DefaultConfig(), func(context.Context) error { return c.err })
			require.Error(t, err, name)
			_, is := errors.AsType[*UnansweredError](err)
			require.Equal(t, c.unanswered, is, "%s: %v", name, err)
		})
	}
}

// An earlier listing is listed without the service, which is contacted only when something is read.
func TestEarlierListingIsUsedWithoutService(t *testing.T) {
	object := func(path string) KnownObject {
		return KnownObject{storage.Object{Path: path, SizeBytes: 5, Version: storage.Version{Inode: fingerprint(`"v1"`)}}, `"v1"`}
	}
	opened := 0
	source := NewLater("https://host/d", func(context.Context) (Source, error) {
		opened++
		return nil, &StatusError{Status: http.StatusForbidden}
	})
	config := DefaultConfig()
	config.Known = &Known{Objects: []KnownObject{object("a/x.tar"), object("a/y.tar"), object("b/x.tar")}}
	s, err := New(source, config)
	require.NoError(t, err)
	var paths []string
	require.NoError(t, s.List(t.Context(), func(path string, isDir bool) bool { return path != "b" && path != "a/y.tar" },
		func(o storage.Object) error { paths = append(paths, o.Path); return nil }))
	require.Equal(t, []string{"a/x.tar"}, paths)
	o, err := s.Stat(t.Context(), "b/x.tar")
	require.NoError(t, err)
	url, v, ok := s.Identity(o)
	require.True(t, ok)
	require.Equal(t, `https://host/d/b/x.tar "v1"`, url+" "+string(v))
	require.Zero(t, opened)
	known, err := s.Known([]storage.Object{o})
	require.NoError(t, err)
	require.Equal(t, config.Known.Objects[2:], known.Objects)
	_, err = s.Known([]storage.Object{{Path: "none"}})
	require.Error(t, err)

	require.ErrorContains(t, storage.ReadAt(t.Context(), s, o, make([]byte, 5), 0), "403")
	_, err = s.Stat(t.Context(), "none")
	require.ErrorContains(t, err, "403")
	require.NotErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, 2, opened)
	require.NoError(t, s.Close())
}

// A listing is not considered younger than it is: indexing may take hours before it is stored.
func TestAgeOfListingIsNotUnderestimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, err := New(NewLater("https://host/d", nil), DefaultConfig())
		require.NoError(t, err)
		o := s.object(Listed{Path: "a.tar", SizeBytes: 5, Validator: `"v1"`})
		time.Sleep(time.Hour)
		known, err := s.Known([]storage.Object{o})
		require.NoError(t, err)
		require.Equal(t, began, known.Asked)
		url, v, ok := s.Identity(o)
		require.True(t, ok)
		sameURL, same := known.Objects[0].Identity("https://host/d")
		require.Equal(t, url+string(v), sameURL+string(same))
		require.NoError(t, s.Close())
	})
}
