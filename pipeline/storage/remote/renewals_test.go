package remote_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// Credentials that expire are renewed without readers noticing, and a signed URL is requested
// again.
func TestExpiringCredentials(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		var mu sync.Mutex
		token := "secret-0"
		w.source.Token = func() string { mu.Lock(); defer mu.Unlock(); return token }
		for i := range 5 {
			mu.Lock()
			token = fmt.Sprintf("secret-%d", i)
			mu.Unlock()
			w.server.SetToken(token)
			for range 3 {
				require.NoError(t, w.read(w.a, 0, mib))
			}
		}
		require.Equal(t, 5, w.source.Refreshed())

		w.server.SetToken("secret-unknown")
		require.ErrorContains(t, w.read(w.a, 0, mib), "renew them")
		_, err := w.Stat(t.Context(), "a.tar")
		require.ErrorContains(t, err, "403 Forbidden")
		require.NotContains(t, err.Error(), "secret")
	})
}

// Credentials that are renewed late by something else are waited for, like a service that is down:
// by a read, a Stat and a listing. Those that can't change are an error at once.
func TestLateCredentialRenewal(t *testing.T) {
	asks := map[string]func(w *world) error{
		"read": func(w *world) error { return w.read(w.a, 0, mib) },
		"stat": func(w *world) error { _, err := w.Stat(w.t.Context(), "a.tar"); return err },
		"list": func(w *world) error { _, err := w.list(); return err },
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				begin := time.Now()
				token := func() string { return "secret-1" }
				w.source.Token = func() string { return token() }
				w.source.Renewal = remote.LateRenewal
				w.server.SetToken("secret-1")
				require.NoError(t, ask(w))
				for n, late := range []time.Duration{time.Second / 2, 3 * time.Second, 4 * time.Minute} {
					begin = time.Now()
					fresh := fmt.Sprintf("secret-%d", n+2)
					w.server.SetToken(fresh)
					stale := token()
					token = func() string {
						if time.Since(begin) < late {
							return stale
						}
						return fresh
					}
					require.NoError(t, ask(w))
					require.GreaterOrEqual(t, time.Since(begin), late)
					require.Less(t, time.Since(begin), late+5*time.Second, "it is looked for again every some seconds")
				}
				w.server.SetToken("secret-never")
				begin = time.Now()
				require.ErrorContains(t, ask(w), "it has failed for")
				require.Greater(t, time.Since(begin), 4*time.Minute)
				w.source.Renewal = remote.NoRenewal
				begin = time.Now()
				require.ErrorContains(t, ask(w), "ExpiredToken")
				require.Less(t, time.Since(begin), time.Second)
			})
		})
	}
}

func TestExpiringSignedRedirects(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.source.Resolve = true
		for range 3 {
			require.NoError(t, w.read(w.a, mib, mib))
			require.NoError(t, w.read(w.a, 2*mib, mib))
			w.server.ExpireSignatures()
		}
		require.Equal(t, 2, w.source.Refreshed())
	})
}

// A host name that is not found is an error at the start, and an outage later.
func TestUnresolvableHostNames(t *testing.T) {
	missing := &net.DNSError{Err: "no such host", Name: "unkind.test", IsNotFound: true}
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(nil, faultserver.LastAnswer()) // so that each request needs a connection
		require.NoError(t, w.read(w.a, 0, mib))
		failures := 7
		w.source.Dial = func() error {
			if failures--; failures >= 0 {
				return missing
			}
			return nil
		}
		require.NoError(t, w.read(w.a, 0, mib))
	})
	synctest.Test(t, func(t *testing.T) {
		source := faultserver.Connect(t, faultserver.New())
		source.Dial = func() error { return missing }
		s := engine(t, source, nil)
		began := time.Now()
		_, err := s.Stat(t.Context(), "a.tar")
		require.ErrorContains(t, err, "look at the host's name, and at DNS")
		require.LessOrEqual(t, time.Since(began), 15*time.Second)
		require.Greater(t, time.Since(began), 8*time.Second, "a resolver may be coming up")
		require.NotContains(t, err.Error(), "secret")
		require.NoError(t, s.Close())
	})
}

// Connections that can't be made now may succeed later: a dead address, a full table.
func TestRefusedConnections(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(nil, faultserver.LastAnswer())
		require.NoError(t, w.read(w.a, 0, mib))
		dials := 0
		w.source.Dial = func() error {
			if dials++; dials%4 != 0 {
				return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
			}
			return nil
		}
		for range 8 {
			require.NoError(t, w.read(w.a, 0, mib))
		}
	})
}

// A host that has never answered is retried for a while, but not as long as one that has: its port
// may be wrong.
func TestHostThatNeverRespondedFailsSoon(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	synctest.Test(t, func(t *testing.T) {
		source := faultserver.Connect(t, faultserver.New())
		source.Dial = func() error { return refused }
		s := engine(t, source, nil)
		began := time.Now()
		_, err := s.Stat(t.Context(), "a.tar")
		require.ErrorContains(t, err, "connection refused: look at the host's name and port")
		require.LessOrEqual(t, time.Since(began), 20*time.Second)
		require.Greater(t, time.Since(began), 10*time.Second, "a service may be coming up")
		require.NoError(t, s.Close())
	})
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(nil, faultserver.LastAnswer())
		w.stat("a.tar")
		down := time.Now()
		w.source.Dial = func() error {
			if time.Since(down) < time.Minute {
				return refused
			}
			return nil
		}
		w.stat("a.tar") // it has answered before
	})
}
