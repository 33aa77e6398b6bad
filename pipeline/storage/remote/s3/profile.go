package s3

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// profile is the configuration in the files of the AWS command line.
type profile struct {
	name   string
	chosen bool // by the environment
	found  bool
	// awaited means that it has no keys yet, and may get some: the file of keys that the
	// environment names is missing or empty, or all files are, though the environment names one of
	// them, or a profile.
	awaited  bool
	region   string
	endpoint string
	// addressing is addressing_style: where requests name the bucket.
	addressing string
	// unplaced means that endpoints from the environment and from profiles must not be used.
	unplaced bool
	bundle   string  // of certificates
	values   section // all of its settings
	files    []string
}

// readProfile reads the profile that the environment names, or the default one. Missing files are
// ignored; a file that can't be read is an error.
func readProfile() (profile, error) {
	name := cmp.Or(variable("AWS_PROFILE"), variable("AWS_DEFAULT_PROFILE"))
	p := profile{name: cmp.Or(name, "default"), chosen: name != "", values: section{}}
	home, _ := os.UserHomeDir() // without one only files that the environment names are read
	services := map[string]section{}
	unwritten, named, keyless := 0, false, false
	for _, file := range []struct{ variable, name, section string }{
		{"AWS_CONFIG_FILE", "config", "profile " + p.name}, {"AWS_SHARED_CREDENTIALS_FILE", "credentials", p.name},
	} {
		path := os.Getenv(file.variable)
		if path == "" && home != "" {
			path = filepath.Join(home, ".aws", file.name)
		}
		if path == "" {
			continue
		}
		p.files = append(p.files, path)
		if !written(path) {
			unwritten++
			if os.Getenv(file.variable) != "" {
				named, keyless = true, file.name == "credentials"
			}
			continue
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return p, remote.Refuse("file of AWS profiles: %w", err)
		}
		parsed, err := parseINI(string(text))
		if err != nil {
			return p, remote.Refuse("file of AWS profiles %s: %w", path, err)
		}
		for _, name := range []string{file.section, p.name} {
			if s := parsed[name]; len(s) > 0 {
				p.take(s)
				break
			}
		}
		if file.name == "config" {
			services = parsed
		}
	}
	p.awaited = !p.hasKeys() && (keyless || (named || p.chosen) && unwritten == len(p.files))
	p.region, p.bundle = p.values.word("region"), p.values.word("ca_bundle")
	p.endpoint = p.values.word("endpoint_url")
	p.addressing = strings.ToLower(p.values.nested("s3").word("addressing_style"))
	if name := p.values.word("services"); name != "" {
		p.endpoint = cmp.Or(services["services "+name].nested("s3").word("endpoint_url"), p.endpoint)
	}
	p.unplaced = strings.EqualFold(cmp.Or(variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), p.values.word("ignore_configured_endpoint_urls")), "true")
	if p.unplaced {
		p.endpoint = ""
	}
	return p, nil
}

// staticKeys are the settings with the keys themselves. They belong together: keys from different
// files are never mixed.
var staticKeys = []string{"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}

// take adds the profile's settings from another file, which take precedence.
func (p *profile) take(s section) {
	p.found = true
	if s["aws_access_key_id"] != "" && s["aws_secret_access_key"] != "" {
		for _, key := range staticKeys {
			delete(p.values, key)
		}
	}
	for key, value := range s {
		if value != "" {
			p.values[key] = value
		}
	}
}

// hasKeys reports whether the profile has credentials, or names their source.
func (p profile) hasKeys() bool {
	for _, key := range []string{"role_arn", "aws_access_key_id", "aws_secret_access_key", "credential_process", "sso_session", "sso_start_url", "sso_account_id"} {
		if p.values[key] != "" {
			return true
		}
	}
	return false
}

// Trust returns the transport settings for S3 services: the certificates named by the flag
// --ca-file, or else by the environment or the profile.
func Trust(caFile string) (web.Settings, error) {
	file, from := variable("AWS_CA_BUNDLE"), "AWS_CA_BUNDLE"
	switch {
	case caFile != "":
		file, from = caFile, ""
	case file == "":
		p, err := readProfile()
		if err != nil {
			return web.Settings{}, err
		}
		file, from = p.bundle, "ca_bundle of the profile"
	}
	return web.Settings{CAFile: file, CAFrom: from}, nil
}

// section is the settings in one section of a profile file, by key in lower case.
type section map[string]string

// parseINI parses a profile file like Amazon's command line: a line that is indented deeper than
// the previous key continues that key's value, and section headers may be indented. A later section
// of the same name adds to the earlier one.
func parseINI(text string) (map[string]section, error) {
	all := map[string]section{}
	var at section
	key, deep := "", 0
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		value := strings.TrimSpace(line)
		if value == "" || value[0] == '#' || value[0] == ';' {
			continue
		}
		indent := strings.Index(line, value)
		if at != nil && key != "" && indent > deep {
			at[key] += "\n" + value
			continue
		}
		deep = indent
		if value[0] == '[' {
			end := strings.IndexByte(value, ']')
			if end < 0 {
				return nil, fmt.Errorf("line %d begins a section, and has no ]", i+1)
			}
			name := sectionName(value[1:end])
			if all[name] == nil {
				all[name] = section{}
			}
			at, key = all[name], ""
			continue
		}
		name, rest, found := cutKey(value)
		if !found || at == nil { // the line may be a secret, and is not printed
			return nil, fmt.Errorf("line %d of it is neither [SECTION] nor KEY = VALUE of one", i+1)
		}
		key = name
		at[key] = rest
	}
	return all, nil
}

// sectionName returns a name without the quotes that its second word may have, and with one blank
// between the words.
func sectionName(text string) string {
	kind, name, two := strings.Cut(strings.TrimSpace(text), " ")
	if !two {
		return kind
	}
	return kind + " " + strings.Trim(strings.TrimSpace(name), `"'`)
}

func cutKey(line string) (key, value string, found bool) {
	at := strings.IndexAny(line, "=:")
	if at <= 0 {
		return "", "", false
	}
	return strings.ToLower(strings.TrimSpace(line[:at])), strings.TrimSpace(line[at+1:]), true
}

// word returns a value that contains no blanks, without a comment after it and quotes around it.
func (s section) word(key string) string {
	value := s[key]
	for _, comment := range []string{" #", " ;", "\t#", "\t;"} {
		value, _, _ = strings.Cut(value, comment)
	}
	return strings.Trim(strings.TrimSpace(value), `"`)
}

// nested returns the settings in a value that consists of settings, one per line:
//
//	s3 =
//	  endpoint_url = http://HOST:PORT
func (s section) nested(key string) section {
	in := section{}
	for line := range strings.Lines(s[key]) {
		if name, value, found := cutKey(strings.TrimSpace(line)); found {
			in[name] = value
		}
	}
	return in
}

const (
	// endGrace is how long a process may take to end after SIGTERM, and its pipes after its end.
	endGrace = 500 * time.Millisecond
	// maxSaidBytes bounds how much of the end of a process's stderr is kept.
	maxSaidBytes = 1 << 10
	// maxKeysBytes bounds its stdout; session tokens have about 2 KiB.
	maxKeysBytes = 1 << 20
)

// process is a credential_process of a profile: a program that prints keys as JSON.
type process struct {
	credentials.Expiry
	command string
	said    said
}

// RetrieveWithCredContext runs the process once. It ends with cc.Context, together with everything
// it has started.
func (p *process) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	words, err := splitWords(p.command)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("credential_process: %w", err)
	}
	out, err := p.run(cc.Context, words)
	if err != nil {
		return credentials.Value{}, fmt.Errorf("credential_process %s: %w%s", words[0], err, p.said.last())
	}
	var keys struct {
		Version                                    int
		AccessKeyID, SecretAccessKey, SessionToken string
		Expiration                                 time.Time
	}
	if json.Unmarshal(out, &keys) != nil { // its text may contain keys
		return credentials.Value{}, fmt.Errorf("credential_process %s: what it printed is not JSON with keys%s", words[0], p.said.last())
	}
	if keys.Version != 1 {
		return credentials.Value{}, fmt.Errorf("credential_process %s: it printed keys of version %d, and 1 is known", words[0], keys.Version)
	}
	if !keys.Expiration.IsZero() {
		p.SetExpiration(keys.Expiration, credentials.DefaultExpiryWindow)
	}
	return credentials.Value{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.SessionToken, Expiration: keys.Expiration}, nil
}

// Retrieve implements credentials.Provider.
func (p *process) Retrieve() (credentials.Value, error) {
	return p.RetrieveWithCredContext(&credentials.CredContext{Context: context.Background()})
}

// run returns what the process prints. If there is a terminal the process may prompt there, for
// example for a code; so it stays in this process's group, which Ctrl-C ends as a whole. Otherwise
// it has a group of its own, which ends with it.
func (p *process) run(ctx context.Context, words []string) ([]byte, error) {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the process ends
	defer runtime.UnlockOSThread()
	p.said.clear()
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	target := func() int { return c.Process.Pid }
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		c.Stdin = os.Stdin
	} else {
		c.SysProcAttr.Setpgid = true
		target = func() int { return -c.Process.Pid }
	}
	c.Cancel = func() error {
		if unix.Kill(target(), unix.SIGTERM) != nil { // it has just ended
			return os.ErrProcessDone
		}
		return nil
	}
	c.WaitDelay = endGrace
	out := &bounded{}
	c.Stdout, c.Stderr = out, &p.said
	err := c.Run()
	if ctx.Err() != nil {
		if c.Process != nil && c.SysProcAttr.Setpgid {
			_ = unix.Kill(target(), unix.SIGKILL) // whatever it started, or did not end on its own; an error means that nothing is left
		}
		return nil, fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended successfully, and something that it started, such as a browser, still has its stdout
	}
	if err == nil && out.full {
		err = fmt.Errorf("it printed more than %d bytes", maxKeysBytes)
	}
	return out.text, err
}

// bounded keeps the beginning of what is written.
type bounded struct {
	text []byte
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := min(len(p), maxKeysBytes-len(b.text))
	b.text = append(b.text, p[:kept]...)
	b.full = b.full || kept < len(p)
	return len(p), nil
}

// said keeps the end of what is written. It is safe for concurrent use.
type said struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*said)(nil)

func (s *said) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = nil
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	s.text = s.text[max(len(s.text)-maxSaidBytes, 0):]
	return len(p), nil
}

// last returns what was written last, as one line to append to another text; "" for nothing.
func (s *said) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.FieldsFunc(string(s.text), func(r rune) bool { return r == '\n' || r == '\r' })
	text := strings.TrimSpace(strings.Join(lines, "; "))
	if text == "" {
		return ""
	}
	return ": it says: " + printable.Line(remote.CleanText(text))
}

// splitWords splits a command into words as a POSIX shell does, with quotes but without expansions.
func splitWords(command string) (words []string, err error) {
	var word strings.Builder
	within, quote := false, rune(0)
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, within = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, within = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if within {
				words = append(words, word.String())
			}
			word.Reset()
			within = false
		default:
			word.WriteRune(r)
			within = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("a quote (%c) in it does not end", quote)
	case escaped:
		return nil, errors.New("it ends in a backslash")
	case within:
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("it names no program")
	}
	return words, nil
}
