package volume

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
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

// minSecretBytes is the length below which Veil does not treat a value as a secret.
const minSecretBytes = 4

// Veil removes the values of credentials from a text.
func (v Volume) Veil(text string) string {
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
