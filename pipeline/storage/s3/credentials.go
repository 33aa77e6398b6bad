package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// findTimeout bounds one search for credentials, whose services answer within
	// milliseconds, or, where there are none, not at all.
	findTimeout = 30 * time.Second
	// metadataTimeout is what a machine without a metadata service costs.
	metadataTimeout = 3 * time.Second
	// renewAge keeps many requests that fail at once from renewing as many times.
	renewAge = 10 * time.Second
)

// keys are credentials, found when they are first needed, and again before they expire.
// Safe for concurrent use.
type keys struct {
	find func(ctx context.Context) (credentials.Value, credentials.Provider, error)
	now  func() time.Time
	// ended is closed by close, which ends a search.
	ended chan struct{}

	mu       sync.Mutex
	value    credentials.Value
	provider credentials.Provider // says when value is to be renewed; nil: there is none yet
	renew    bool
	tried    time.Time     // when they were looked for last
	finding  chan struct{} // is closed when a search ends; nil: there is none
	err      error         // how the last search ended
}

func newKeys(find func(context.Context) (credentials.Value, credentials.Provider, error)) *keys {
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
	case <-time.After(time.Second): // a credential_process that hangs ends with this process
	}
}

// get gives credentials, waiting for them while ctx lasts. Those that could not be
// renewed are good until they have expired.
func (k *keys) get(ctx context.Context) (credentials.Value, error) {
	k.mu.Lock()
	due := k.provider == nil || k.renew || !k.value.Expiration.IsZero() && k.provider.IsExpired()
	if k.usable() && (!due || k.err != nil && k.now().Sub(k.tried) < renewAge) {
		defer k.mu.Unlock()
		return k.value, nil
	}
	if k.finding == nil {
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
	return k.value, nil
}

// usable says whether there are credentials that have not expired.
func (k *keys) usable() bool {
	return k.provider != nil && (k.value.Expiration.IsZero() || k.now().Before(k.value.Expiration))
}

// search looks for credentials once. It outlasts the request that began it, for others.
func (k *keys) search(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	go func() {
		select {
		case <-k.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	value, provider, err := k.find(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	had := k.provider != nil
	k.tried, k.finding, k.err = k.now(), nil, nil
	switch {
	case err == nil:
		k.value, k.provider, k.renew = value, provider, false
	case had: // they were good once: what fails now may pass
		k.err = fmt.Errorf("renewing credentials: %w", err)
	default:
		k.err = &remote.Refusal{Err: err}
	}
	close(done)
}

// expire has the next request look for credentials anew, unless this was just done.
func (k *keys) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew = k.now().Sub(k.tried) >= renewAge || k.renew
}

// origin is one place that credentials may be in.
type origin struct {
	name string
	// configured says whether somebody has set this place up: then what fails there is
	// told, and no other place is looked at.
	configured bool
	absent     string // why it is not configured
	provider   credentials.Provider
	client     *http.Client
	timeout    time.Duration
}

// chain looks through all places, in the order of Amazon's own programs.
func chain(p profile, service, local http.RoundTripper) func(context.Context) (credentials.Value, credentials.Provider, error) {
	return func(ctx context.Context) (credentials.Value, credentials.Provider, error) {
		var seen []string
		for _, o := range origins(p, service, local) {
			if !o.configured && o.provider == nil {
				seen = append(seen, o.name+" ("+o.absent+")")
				continue
			}
			value, err := o.retrieve(ctx)
			if err == nil {
				return value, o.provider, nil
			}
			if o.configured {
				return credentials.Value{}, nil, fmt.Errorf("credentials of %s: %w", o.name, remote.Clean(err))
			}
			seen = append(seen, o.name+" ("+remote.CleanText(err.Error())+")")
		}
		return credentials.Value{}, nil, fmt.Errorf("no credentials were found. Looked for: %s. Set one of them up, or, for a public bucket, give --anonymous", strings.Join(seen, "; "))
	}
}

func (o origin) retrieve(ctx context.Context) (credentials.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	value, err := o.provider.RetrieveWithCredContext(&credentials.CredContext{Client: o.client, Context: ctx})
	if err != nil {
		return value, err
	}
	for _, part := range []*string{&value.AccessKeyID, &value.SecretAccessKey, &value.SessionToken} {
		*part = strings.TrimSpace(*part) // secrets that are made from files often end in a newline
		if strings.ContainsFunc(*part, unicode.IsControl) {
			return value, errors.New("the keys have a control character in them, such as a newline")
		}
	}
	if value.AccessKeyID == "" || value.SecretAccessKey == "" {
		err = errors.New("there are no keys in it")
	}
	return value, err
}

func origins(p profile, service, local http.RoundTripper) []origin {
	far, near := &http.Client{Transport: service}, &http.Client{Transport: local}
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	environment := origin{name: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment", absent: "not set", timeout: findTimeout}
	if id != "" || secret != "" {
		environment.configured, environment.provider = true, &credentials.EnvAWS{}
	}
	identity := origin{name: "a web identity, by AWS_WEB_IDENTITY_TOKEN_FILE", absent: "not set", client: far, timeout: findTimeout}
	if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		identity.configured, identity.provider = true, &credentials.IAM{}
	}
	file := origin{name: fmt.Sprintf("profile %q in %s", p.name, strings.Join(p.files, " and ")), absent: "not there", client: far, timeout: findTimeout}
	switch {
	case p.keys || p.chosen:
		file.configured, file.provider = true, &profiled{p, credentials.FileAWSCredentials{Profile: p.name}}
	case p.found:
		file.absent = "it has no keys"
	}
	container := origin{name: "a container's role, by AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI", absent: "not set", client: near, timeout: findTimeout}
	if os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" {
		container.configured, container.provider = true, &credentials.IAM{}
	}
	machine := origin{name: "the role of the machine, from its metadata service", absent: "AWS_EC2_METADATA_DISABLED is set", client: near, timeout: metadataTimeout}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		machine.provider = &credentials.IAM{Endpoint: os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")}
	}
	return []origin{environment, identity, file, container, machine}
}

// profiled is a profile's credentials.
type profiled struct {
	of profile
	credentials.FileAWSCredentials
}

func (p *profiled) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if p.of.role {
		return credentials.Value{}, fmt.Errorf("it takes a role (role_arn), which is not supported: set credential_process = aws configure export-credentials --profile %s in a profile of its own", p.of.name)
	}
	return p.FileAWSCredentials.RetrieveWithCredContext(cc)
}
