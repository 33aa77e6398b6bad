package volume

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// secretKeys are the keys that a Secret may have: environment variables that mount reads. The value
// is true for secrets. Variables that name files of the node are not allowed.
var secretKeys = map[string]bool{
	"AWS_ACCESS_KEY_ID": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true,
	"LSIOFS_HTTP_TOKEN": true,
	"AWS_REGION":        false, "AWS_DEFAULT_REGION": false, "AWS_ENDPOINT_URL": false, "AWS_ENDPOINT_URL_S3": false,
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (q *parser) credentials(secrets map[string]string) {
	var unknown []string
	for _, name := range sortedKeys(secrets) {
		value := secrets[name]
		switch _, known := secretKeys[name]; {
		case !known:
			unknown = append(unknown, fmt.Sprintf("%q", short(name)))
		case len(value) > maxValueBytes || strings.ContainsAny(value, "\x00"):
			q.problem("key %s of the Secret is longer than %d bytes, or has a zero byte", name, maxValueBytes)
		default:
			q.v.Environment = append(q.v.Environment, name+"="+value)
		}
	}
	if len(unknown) > 0 {
		q.problem("the Secret may not have a key %s: it may have %s", strings.Join(unknown, ", "), strings.Join(sortedKeys(secretKeys), ", "))
	}
}

// minSecretBytes is the length below which Redact does not treat a value as a secret.
const minSecretBytes = 4

// Redact removes the values of credentials from a text.
func (v Volume) Redact(text string) string {
	for _, variable := range v.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if !secretKeys[name] {
			continue
		}
		secrets := []string{value}
		for line := range strings.Lines(value) { // a value may have several tokens, each after its host
			if words := strings.Fields(line); len(words) > 1 {
				secrets = append(secrets, words[len(words)-1])
			}
		}
		for _, secret := range secrets {
			if len(secret) >= minSecretBytes {
				text = strings.ReplaceAll(text, secret, "("+name+")")
			}
		}
	}
	return text
}

// Key returns the name of a volume's server: 32 hexadecimal digits. hashKey is the node's own
// secret. The policy is part of the key because a running server keeps the policy with which it was
// started.
func (v Volume) Key(hashKey []byte, p Policy) string {
	h := hmac.New(sha256.New, hashKey)
	write := func(parts ...string) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(parts))) // writing to a hash does not fail
		for _, p := range parts {
			_ = binary.Write(h, binary.LittleEndian, uint64(len(p)))
			_, _ = io.WriteString(h, p)
		}
	}
	write(v.Dataset)
	write(v.Args...)
	write(v.Environment...)
	write(p.AllowURLs...)
	write(p.Never...)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Policy determines what this node's administrator allows pods to name.
type Policy struct {
	// Allow are the directories that paths must be in; if empty, all except Never.
	Allow []string
	// Never are directories that no path may be, be in, or be above.
	Never []string
	// AllowURLs are services on this machine, and metadata services, that URLs may lead to. Servers
	// enforce this, because names and redirects can lead there, too.
	AllowURLs []string
	// MemoryLimitBytes is the memory that a server may take; 0: no limit.
	MemoryLimitBytes int64
}

// Never returns the directories that no pod may name: those of the system, and own.
func Never(own ...string) []string {
	all := []string{"/proc", "/sys", "/dev", "/etc", "/run", "/var/run", "/root"}
	for _, dir := range own {
		all = append(all, filepath.Clean(dir))
	}
	return all
}

// CheckPattern checks an absolute path, which may be a pattern, and returns its part before the
// first pattern.
func (p Policy) CheckPattern(pattern string) (prefix string, err error) {
	prefix = filepath.Clean(pattern)
	for strings.HasPrefix(pattern, "/") && strings.ContainsAny(prefix, `*?[{\`) {
		prefix = filepath.Dir(prefix)
	}
	return prefix, p.check(pattern, prefix)
}

// Check checks an absolute path that is not a pattern.
func (p Policy) Check(path string) error { return p.check(path, filepath.Clean(path)) }

// check checks clean; errors call it name.
func (p Policy) check(name, clean string) error {
	switch {
	case !strings.HasPrefix(name, "/"):
		return fmt.Errorf("%q must be an absolute path of the node, or a URL where a dataset is named", short(name))
	case climbs(name):
		return fmt.Errorf("%q must not have .. in it: write the path without", short(name))
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(dir string) bool { return within(clean, dir) }) {
		return fmt.Errorf("%q is in none of the directories that this node's administrator allows (--allow-path of the driver): %s", short(name), strings.Join(p.Allow, ", "))
	}
	for _, dir := range p.Never {
		if within(clean, dir) || within(dir, clean) {
			return fmt.Errorf("%q overlaps %s, which no pod may read: name a directory of data", short(name), dir)
		}
	}
	return nil
}

// climbs reports whether a path or pattern has an element "..", also as an alternative in braces.
func climbs(pattern string) bool {
	return slices.Contains(strings.FieldsFunc(pattern, func(r rune) bool { return strings.ContainsRune("/{,}", r) }), "..")
}

// within reports whether path is dir or below it. Both are clean and absolute.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
