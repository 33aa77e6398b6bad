package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/web"
)

// Credentials are looked for once for all sources that share it, as for all of one command: a process
// that asks somebody to sign in, and services that count requests, are asked once. Safe for concurrent
// use.
type Credentials struct {
	patience time.Duration
	local    *web.Transport // for services of this machine, which no proxy reaches

	mu  sync.Mutex
	all map[string]*keys // by the profile's name
}

// NewCredentials makes one, which is closed after the sources that share it. patience is for how long
// a process that gives credentials is waited for.
func NewCredentials(patience time.Duration) (*Credentials, error) {
	local, err := web.NewTransport(web.Settings{Local: true})
	if err != nil {
		return nil, err
	}
	return &Credentials{patience: patience, local: local, all: map[string]*keys{}}, nil
}

// of gives the keys of a profile. service makes requests to services of Amazon's.
func (c *Credentials) of(p profile, service http.RoundTripper) *keys {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.all[p.name]
	if k == nil {
		k = newKeys(chain(service, c.local, max(c.patience, findTimeout)))
		c.all[p.name] = k
	}
	return k
}

// Waiting is what is waited for, in words: credentials that are being looked for; "" for nothing.
func (c *Credentials) Waiting() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, k := range c.all {
		if waits := k.waiting(); waits != "" {
			all = append(all, waits)
		}
	}
	return strings.Join(all, ", ")
}

// Close ends searches that are under way, and lets go of idle connections.
func (c *Credentials) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.all {
		k.close()
	}
	c.local.Close()
}

// held are credentials, with the place that they are from.
type held struct {
	value  credentials.Value
	origin *origin
}

// keys are credentials, found when they are first needed, and again before they expire.
// Safe for concurrent use.
type keys struct {
	find func(ctx context.Context, looking func(*origin)) (held, error)
	now  func() time.Time
	// ended is closed by close, which ends a search.
	ended    chan struct{}
	accepted atomic.Bool // the service has taken them, or those before them, once

	mu      sync.Mutex
	held    held // origin is nil: there are none yet
	renew   bool
	tried   time.Time     // when they were looked for last
	failed  int           // searches in a row that found none, which may come
	finding chan struct{} // is closed when a search ends; nil: there is none
	looking *origin       // the place that the search is at
	err     error         // how the last search ended
}

func newKeys(find func(context.Context, func(*origin)) (held, error)) *keys {
	return &keys{find: find, now: time.Now, ended: make(chan struct{})}
}

// close ends a search that is under way. Nobody waits for credentials any more.
func (k *keys) close() {
	close(k.ended)
	k.mu.Lock()
	finding := k.finding
	k.mu.Unlock()
	if finding == nil {
		return
	}
	select {
	case <-finding:
	case <-time.After(time.Second): // what hangs ends with this process
	}
}

// get gives credentials, waiting for them while ctx lasts. Those that could not be
// renewed are good until they have expired.
func (k *keys) get(ctx context.Context) (credentials.Value, error) {
	k.mu.Lock()
	lately := k.now().Sub(k.tried) < k.again() // else many requests that fail at once renew as many times
	due := k.held.origin == nil || k.renew || !k.held.value.Expiration.IsZero() && k.held.origin.provider.IsExpired()
	switch {
	case k.usable() && (!due || k.err != nil && lately):
		defer k.mu.Unlock()
		return k.held.value, nil
	case k.finding == nil && k.err != nil && lately:
		defer k.mu.Unlock()
		return credentials.Value{}, k.err
	case k.finding == nil:
		k.finding = make(chan struct{})
		go k.search(context.WithoutCancel(ctx), k.finding)
	}
	finding := k.finding
	k.mu.Unlock()
	select {
	case <-finding:
	case <-ctx.Done():
		return credentials.Value{}, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil && !k.usable() {
		return credentials.Value{}, k.err
	}
	return k.held.value, nil
}

// again is how long after a search the next one is worth it.
func (k *keys) again() time.Duration {
	if from := k.coming(); from != nil {
		return from.pause(k.failed)
	}
	return k.held.origin.again()
}

// coming is the place that may have the first credentials later; nil where nobody knows of one.
func (k *keys) coming() *origin {
	if e, ok := errors.AsType[*comingError](k.err); ok && k.held.origin == nil {
		return e.from
	}
	return nil
}

// usable says whether there are credentials that have not expired.
func (k *keys) usable() bool {
	return k.held.origin != nil && (k.held.value.Expiration.IsZero() || k.now().Before(k.held.value.Expiration))
}

// search looks for credentials once. It outlasts the request that began it, for others.
func (k *keys) search(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-k.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	found, err := k.find(ctx, func(o *origin) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.looking = o
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	had := k.held.origin != nil
	k.tried, k.finding, k.looking, k.err = k.now(), nil, nil, nil
	_, coming := errors.AsType[*comingError](err)
	switch {
	case err == nil:
		k.held, k.renew, k.failed = found, false, 0
	case had: // they were good once: what fails now may pass
		k.err = fmt.Errorf("renewing credentials: %w", err)
	case coming:
		k.err = err
		k.failed++
	default:
		k.err = &remote.Refusal{Err: err}
	}
	close(done)
}

// expire has the next request look for credentials anew, unless this was just done.
func (k *keys) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew = k.held.origin != nil && k.now().Sub(k.tried) >= k.held.origin.again() || k.renew
}

// waiting is what a search waits for, or what is waited for until the next one, in words; "" for nothing.
func (k *keys) waiting() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.finding == nil && k.coming() != nil:
		return "credentials of " + k.coming().name
	case k.finding == nil:
		return ""
	case k.looking == nil:
		return "credentials"
	}
	text := "credentials of " + k.looking.name
	if p, ok := k.looking.provider.(*profiled); ok {
		text += p.process.said.last()
	}
	return text
}

// from is the place that the credentials are from; nil while there are none.
func (k *keys) from() *origin {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held.origin
}
