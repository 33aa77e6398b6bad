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
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// Credentials looks for credentials once for all sources that share it, such as all sources of one
// command. So a process that asks the user to sign in runs once, and services that count requests
// get one. It is safe for concurrent use.
type Credentials struct {
	patience time.Duration
	local    *web.Transport // for services of this machine; uses no proxy

	mu  sync.Mutex
	all map[string]*keys // by name of the profile
}

// NewCredentials returns Credentials, which the caller closes after the sources that share it.
// patience is how long to wait for a process that provides credentials.
func NewCredentials(patience time.Duration) (*Credentials, error) {
	local, err := web.NewTransport(web.Settings{Local: true})
	if err != nil {
		return nil, err
	}
	return &Credentials{patience: patience, local: local, all: map[string]*keys{}}, nil
}

// of returns the keys of a profile. service makes requests to Amazon's services.
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

// Waiting describes the credentials that are being looked for; "" if there are none.
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

// Close ends running searches, and closes idle connections.
func (c *Credentials) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.all {
		k.close()
	}
	c.local.Close()
}

// held are credentials and the place that they are from.
type held struct {
	value  credentials.Value
	origin *origin
}

// keys are credentials, looked for when they are first needed, and again before they expire. They
// are safe for concurrent use.
type keys struct {
	find func(ctx context.Context, looking func(*origin)) (held, error)
	now  func() time.Time
	// ended is closed by close, and ends a search.
	ended    chan struct{}
	accepted atomic.Bool // the service has accepted these or earlier ones at least once

	mu      sync.Mutex
	held    held // origin is nil: none yet
	renew   bool
	tried   time.Time     // time of the last search
	failed  int           // searches in a row without success, though credentials may come later
	finding chan struct{} // closed when the running search ends; nil: none is running
	looking *origin       // the place that the search is trying
	err     error         // result of the last search
}

func newKeys(find func(context.Context, func(*origin)) (held, error)) *keys {
	return &keys{find: find, now: time.Now, ended: make(chan struct{})}
}

// close ends a running search. There must be no waiting calls of get.
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
	case <-time.After(time.Second): // a provider that hangs ends with this process
	}
}

// get returns credentials, waiting for them as long as ctx lasts. If they can't be renewed, the old
// ones are used until they have expired.
func (k *keys) get(ctx context.Context) (credentials.Value, error) {
	k.mu.Lock()
	lately := k.now().Sub(k.tried) < k.again() // otherwise many requests that fail at once would renew as many times
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

// again returns how long to wait after a search before the next one.
func (k *keys) again() time.Duration {
	if from := k.coming(); from != nil {
		return from.pause(k.failed)
	}
	return k.held.origin.again()
}

// coming returns the place that may have the first credentials later, or nil.
func (k *keys) coming() *origin {
	if e, ok := errors.AsType[*comingError](k.err); ok && k.held.origin == nil {
		return e.from
	}
	return nil
}

// usable reports whether there are credentials that have not expired.
func (k *keys) usable() bool {
	return k.held.origin != nil && (k.held.value.Expiration.IsZero() || k.now().Before(k.held.value.Expiration))
}

// search looks for credentials once. It outlasts the request that started it, because others wait
// for it too.
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
	case had: // they were valid before: a failure now may pass
		k.err = fmt.Errorf("renewing credentials: %w", err)
	case coming:
		k.err = err
		k.failed++
	default:
		k.err = &remote.Refusal{Err: err}
	}
	close(done)
}

// expire makes the next request look for new credentials, unless that was done very recently.
func (k *keys) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew = k.held.origin != nil && k.now().Sub(k.tried) >= k.held.origin.again() || k.renew
}

// waiting describes what a search waits for, or what the next search is for; "" for nothing.
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

// from returns the place that the credentials are from; nil if there are none.
func (k *keys) from() *origin {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held.origin
}
