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

// secretKeys are those that a Secret may have: variables of the environment that mount reads. The
// value says whether it is secret. Variables that name files of the node are not among them.
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

// minSecretBytes is how short a value may be that Veil takes for a secret.
const minSecretBytes = 4

// Veil takes the values of credentials out of a text.
func (v Volume) Veil(text string) string {
	for _, variable := range v.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if !secretKeys[name] {
			continue
		}
		secrets := []string{value}
		for line := range strings.Lines(value) { // a value may have several tokens, each behind its host
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

// Key names the server of a volume: 32 hexadecimal digits. hashKey is the node's own secret. Another policy
// has other servers: one that runs keeps the policy that it was started with.
func (v Volume) Key(hashKey []byte, p Policy) string {
	h := hmac.New(sha256.New, hashKey)
	write := func(parts ...string) {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(parts))) // a hash takes everything
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
