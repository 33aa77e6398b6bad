package remote_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// troubles collects the reports, one per line. The engine may add to them while a test reads them.
type troubles struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *troubles) tell(t remote.Trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(t.String() + " [" + t.Object + "]\n")
}

func (l *troubles) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func (l *troubles) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// For any request that a reader waits for, a line is reported after three seconds, with the reason
// and how long it will be retried, then one a minute while it lasts, and one when requests are
// answered again. Short delays are not reported.
func TestWaitingReadersGetReasonReported(t *testing.T) {
	waits := map[string]func(w *world) error{
		"a listing":  func(w *world) error { _, err := w.list(); return err },
		"a question": func(w *world) error { _, err := w.Stat(w.t.Context(), "a.tar"); return err },
		"a read":     func(w *world) error { return w.read(w.a, mib, mib) },
		"a stream": func(w *world) error {
			r := w.open(w.a, 0)
			defer func() { require.NoError(w.t, r.Close()) }()
			_, err := io.Copy(io.Discard, r)
			return err
		},
	}
	faults := map[string]struct {
		fault faultserver.Fault
		words string
	}{
		"an outage": {faultserver.Status(503, "SlowDown"), "503 Service Unavailable (SlowDown)"},
		"a failure": {faultserver.Status(500, ""), "500 Internal Server Error"},
		"silence":   {faultserver.Hang(), "no answer for 3s"},
	}
	for what, wait := range waits {
		for why, f := range faults {
			t.Run(what+", "+why, func(t *testing.T) {
				var log troubles
				in(t, func(c *remote.Config) { c.Trouble = log.tell }, func(t *testing.T, w *world) {
					rule := w.server.On(nil, f.fault)
					var soon, later, after string
					outage := func(look ...time.Duration) {
						done := make(chan error)
						go func() { done <- wait(w) }()
						for i, d := range look {
							time.Sleep(d)
							*[]*string{&soon, &later}[i] = log.String()
						}
						rule.Off()
						require.NoError(t, <-done)
						after = log.String()
					}
					if why != "silence" { // in which no request is ended this soon
						began := time.Now()
						outage(time.Second)
						told := time.Since(began) >= 3*time.Second && what != "a read" // its next attempt may have been drawn this late
						require.Equal(t, told, after != "", "%v: %s", time.Since(began), after)
						time.Sleep(time.Minute) // reports come once a minute
						log.clear()
						rule = w.server.On(nil, f.fault)
					}
					outage(10*time.Second, 3*time.Minute)
					require.Contains(t, soon, "waiting for http://unkind.test/data: ")
					require.Contains(t, soon, f.words)
					require.Regexp(t, `\(([0-9]+ tries, |1 try, )?4m[0-9]+s left\)`, soon)
					require.Equal(t, what != "a listing", strings.Contains(soon, "[a.tar]"), soon)
					require.Equal(t, 1, strings.Count(soon, "\n"), soon)
					require.GreaterOrEqual(t, strings.Count(later, "\n"), 2, later)
					require.LessOrEqual(t, strings.Count(later, "\n"), 4, later)
					require.Equal(t, 1, strings.Count(after, "answers again"), after)
					require.Contains(t, after[strings.LastIndex(after[:len(after)-1], "\n"):], "answers again")
				})
				require.NotContains(t, log.String(), "secret")
			})
		}
	}
}

// A request that was late and ended without an answer does not leave the log with a failure as its
// last line: the first request that is answered a while later ends it.
func TestResponseEndsTroubleOfAbandonedRequest(t *testing.T) {
	var log troubles
	in(t, func(c *remote.Config) { c.Trouble = log.tell }, func(t *testing.T, w *world) {
		rule := w.server.On(nil, faultserver.Status(503, "SlowDown"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := w.Stat(ctx, "a.tar")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		rule.Off()
		require.Equal(t, 1, strings.Count(log.String(), "waiting for"), log.String())
		require.NoError(t, w.read(w.a, 0, mib))
		require.NotContains(t, log.String(), "answers again", "another one may still be failing")
		time.Sleep(time.Minute)
		for range 2 {
			require.NoError(t, w.read(w.a, mib, mib))
			require.Equal(t, 1, strings.Count(log.String(), "answers again"), log.String())
		}
	})
}

// If a request waits for credentials, the report names these and not the server.
func TestWaitBeforeRequestNamesItsCause(t *testing.T) {
	var log troubles
	synctest.Test(t, func(t *testing.T) {
		c := remote.DefaultConfig()
		c.Service, c.Trouble, c.ReadTimeout = "s3.example.com", log.tell, time.Minute
		c.Before = func() string { return "credentials of a process" }
		err := remote.Try(t.Context(), c, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		require.ErrorContains(t, err, "no answer for 20s: credentials of a process did not come")
		require.Contains(t, log.String(), "waiting for credentials of a process (57s left)")
	})
}
