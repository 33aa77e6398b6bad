package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// findTimeout bounds the look at one place. Its service answers within milliseconds, or, if
	// there is none, never.
	findTimeout = 30 * time.Second
	// metadataTimeout is the delay on a machine without a metadata service.
	metadataTimeout = 3 * time.Second
)

// How often to check a place again that should have other credentials by now.
const (
	againFile    = time.Second
	againService = 10 * time.Second
	againProcess = 30 * time.Second // it may open a window each time
)

// ErrNoCredentials is wrapped if no place with credentials is set up.
var ErrNoCredentials = errors.New("no credentials were found")

// origin is a place where credentials may be found.
type origin struct {
	name    string
	setting settings
	// configured means that the user has set this place up: then its failures are reported, and no
	// other place is tried.
	configured bool
	absent     string // why it is not configured
	provider   credentials.Provider
	client     *http.Client
	timeout    time.Duration
	// token is a file that it needs, and that another program may write later.
	token string
	// expected means that the place exists, though it may not answer yet. Configured places are
	// expected.
	expected bool
	// every is how often to check it again if its credentials are rejected; 0: they can't change.
	every time.Duration
}

// settings are the names of the settings with the parts of keys; "" if there is none.
type settings struct{ id, secret, token string }

// again returns how long to wait after a look before the next one.
func (o *origin) again() time.Duration {
	if o == nil {
		return againService
	}
	return o.every
}

// chain returns a function that tries all places, in the order of Amazon's own programs, and calls
// its argument with the place that it is trying. Files are read again each time.
func chain(service, local http.RoundTripper, patience time.Duration) func(context.Context, func(*origin)) (held, error) {
	return func(ctx context.Context, looking func(*origin)) (held, error) {
		p, err := readProfile()
		if err != nil {
			return held{}, err
		}
		var seen []string
		var comes *origin // the first place that may have some later
		for _, o := range origins(p, service, local, patience) {
			if !o.configured && o.provider == nil {
				seen = append(seen, o.name+" ("+o.absent+")")
				if o.expected && comes == nil {
					comes = o
				}
				continue
			}
			looking(o)
			value, err := o.retrieve(ctx)
			if err == nil {
				return held{value, o}, nil
			}
			if (o.configured || o.expected) && comes == nil && o.mayPass(err) {
				comes = o
			}
			if o.configured {
				return held{}, comingFrom(comes, fmt.Errorf("credentials of %s: %w", o.name, remote.Clean(err)))
			}
			seen = append(seen, o.name+" ("+remote.CleanText(err.Error())+")")
		}
		return held{}, comingFrom(comes, fmt.Errorf("%w. Looked for: %s. Set one of them up, or, for a public bucket, give --anonymous", ErrNoCredentials, strings.Join(seen, "; ")))
	}
}

func (o *origin) retrieve(ctx context.Context) (credentials.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.token != "" && !written(o.token) {
		return credentials.Value{}, fmt.Errorf("%w: %s", errUnwritten, o.token)
	}
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

func origins(p profile, service, local http.RoundTripper, patience time.Duration) []*origin {
	far, near := &http.Client{Transport: answers{below: service}}, &http.Client{Transport: answers{below: local}}
	environment := &origin{
		name: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment", absent: "not set", timeout: findTimeout,
		setting: settings{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
	}
	if variable("AWS_ACCESS_KEY_ID") != "" || variable("AWS_SECRET_ACCESS_KEY") != "" {
		environment.configured, environment.provider = true, &credentials.EnvAWS{}
	}
	identity := &origin{name: "a web identity, by AWS_WEB_IDENTITY_TOKEN_FILE", absent: "not set", client: far, timeout: findTimeout, every: againService, token: os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")}
	if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		identity.configured, identity.provider = true, &credentials.IAM{}
	}
	file := &origin{name: fmt.Sprintf("profile %q in %s", p.name, strings.Join(p.files, " and ")), absent: "not there", client: far, timeout: findTimeout, every: againService, expected: p.awaited}
	switch own := (&profiled{of: p}); {
	case p.hasKeys() || p.chosen:
		file.configured, file.provider = true, own
		switch own.kind() {
		case fromNowhere:
			file.every = againFile
		case fromFile:
			file.every = againFile
			file.setting = settings{staticKeys[0], staticKeys[1], staticKeys[2]}
		case fromProcess:
			file.name, file.timeout, file.every = fmt.Sprintf("credential_process of profile %q", p.name), patience, againProcess
			own.process.command = p.values["credential_process"]
		}
	default:
		file.every = againFile
		if p.found {
			file.absent = "it has no keys"
		}
	}
	container := &origin{name: "a container's role, by AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI", absent: "not set", client: near, timeout: findTimeout, every: againService}
	if os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") == "" { // with that variable, no token from a file is sent
		container.token = os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	}
	if os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" {
		container.configured, container.provider = true, &credentials.IAM{}
	}
	machine := &origin{name: "the role of the machine, from its metadata service", absent: "AWS_EC2_METADATA_DISABLED is set", client: near, timeout: metadataTimeout, every: againService, expected: onAmazonsMachine()}
	if !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		machine.provider = &credentials.IAM{Endpoint: os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")}
	}
	return []*origin{environment, identity, file, container, machine}
}

// profiled provides the credentials of a profile, as it was read.
type profiled struct {
	of      profile
	process process
	sso     credentials.FileAWSCredentials
}

// source is where a profile has its credentials.
type source int

const (
	fromNowhere source = iota
	fromFile
	fromSSO
	fromProcess
)

func (p *profiled) kind() source {
	has := func(key string) bool { return p.of.values[key] != "" }
	switch {
	case has("aws_access_key_id") || has("aws_secret_access_key"):
		return fromFile
	case has("sso_role_name") || has("sso_session") || has("sso_start_url") || has("sso_account_id"):
		return fromSSO
	case has("credential_process"):
		return fromProcess
	}
	return fromNowhere
}

// RetrieveWithCredContext implements credentials.Provider.
func (p *profiled) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if p.of.values["role_arn"] != "" {
		return credentials.Value{}, fmt.Errorf("it takes a role (role_arn), which is not supported: set credential_process = aws configure export-credentials --profile %s in a profile of its own", p.of.name)
	}
	switch p.kind() {
	case fromFile:
		v := credentials.Value{AccessKeyID: p.of.values.word(staticKeys[0]), SecretAccessKey: p.of.values.word(staticKeys[1]), SessionToken: p.of.values.word(staticKeys[2])}
		if v.AccessKeyID == "" || v.SecretAccessKey == "" {
			return v, errors.New("it has one of aws_access_key_id and aws_secret_access_key alone: give both")
		}
		return v, nil
	case fromSSO:
		p.sso.Profile = p.of.name
		return p.sso.RetrieveWithCredContext(cc)
	case fromProcess:
		return p.process.RetrieveWithCredContext(cc)
	}
	switch {
	case p.of.awaited:
		return credentials.Value{}, fmt.Errorf("%w: %s", errUnwritten, strings.Join(p.of.files, ", "))
	case !p.of.found:
		return credentials.Value{}, errors.New("there is no such profile: look at AWS_PROFILE")
	}
	return credentials.Value{}, errors.New("it has no keys, and does not say where they come from")
}

// Retrieve implements credentials.Provider.
func (p *profiled) Retrieve() (credentials.Value, error) {
	return p.RetrieveWithCredContext(&credentials.CredContext{Context: context.Background()})
}

// IsExpired implements credentials.Provider.
func (p *profiled) IsExpired() bool {
	switch p.kind() {
	case fromSSO:
		return p.sso.IsExpired()
	case fromProcess:
		return p.process.IsExpired()
	}
	return false
}

// comingError is the error of a search that found nothing, although a place may have credentials
// later: a metadata service that is not up yet, or a file that another program is about to write.
type comingError struct {
	err  error
	from *origin
}

func (e *comingError) Error() string { return e.err.Error() }
func (e *comingError) Unwrap() error { return e.err }

// comingFrom returns the error of a search. from is the place that may have credentials later, or
// nil.
func comingFrom(from *origin, err error) error {
	if from == nil {
		return err
	}
	return &comingError{err, from}
}

// errUnwritten is wrapped if a file that the configuration names is missing or empty.
var errUnwritten = errors.New("not there yet, or empty")

// written reports whether a file has contents, or is not a regular file.
func written(path string) bool {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	return err != nil || !info.Mode().IsRegular() || info.Size() > 0
}

// mayPass reports whether a failure at a place may be different at the next look, without a change
// to how the place is set up.
func (o *origin) mayPass(err error) bool {
	if _, final := errors.AsType[*remote.Refusal](remote.Explain(err)); final {
		return false
	}
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		code := ended.ExitCode()
		return code != shellCannotRun && code != shellNotFound
	}
	if errors.Is(err, errUnwritten) {
		return true
	}
	_, unanswered := errors.AsType[*unansweredError](err)
	return unanswered
}

// Exit codes of a shell that can't run a program, or does not find it.
const (
	shellCannotRun = 126
	shellNotFound  = 127
)

// answers makes requests for credentials. It turns answers that mean that a service is temporarily
// unavailable into errors, because the providers' library returns only their text.
type answers struct{ below http.RoundTripper }

// unansweredError is the error of a request for credentials that may be answered if it is repeated.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.below.RoundTrip(r)
	switch {
	case err != nil:
		return nil, &unansweredError{err}
	case resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout:
		_ = resp.Body.Close()
		return nil, &unansweredError{fmt.Errorf("it answers %s", resp.Status)}
	}
	return resp, nil
}

// onAmazonsMachine reports whether the machine has an Amazon metadata service, which may not be up
// yet: the environment has its address, or the firmware identifies an Amazon machine.
func onAmazonsMachine() bool {
	if variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") != "" {
		return true
	}
	for file, begin := range map[string]string{"/sys/class/dmi/id/sys_vendor": "amazon ec2", "/sys/hypervisor/uuid": "ec2"} {
		text, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(strings.ToLower(string(text)), begin) {
			return true
		}
	}
	return false
}

// pause returns how long to wait after the given number of failed looks in a row, at a place that
// may have credentials later.
func (o *origin) pause(looks int) time.Duration {
	return min(o.every, time.Second<<min(max(looks-1, 0), 16))
}
