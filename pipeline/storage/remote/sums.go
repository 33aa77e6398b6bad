package remote

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Summer is a Source whose service may provide checksums of whole objects.
type Summer interface {
	// Sums describes an object as Head does, and returns the checksums in the same answer.
	Sums(ctx context.Context, path string) (Listed, Sums, error)
}

// Sum is a checksum of all bytes of an object.
type Sum struct {
	Algorithm string // a key of algorithms
	Value     []byte
	Where     string // the header that contained it
}

// Sums holds the checksums that a service has for an object's bytes.
type Sums struct {
	Sums []Sum
	// Why is why there is no checksum, or "" if there is one.
	Why string
}

// castagnoli and nvme are the tables of crc32c and of CRC-64/NVME. The polynomial of the latter is
// reversed, as hash/crc64 expects.
var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	nvme       = crc64.MakeTable(0x9a6c9329ac4bc9b5)
)

// algorithms are the algorithms that services use.
var algorithms = map[string]func() hash.Hash{
	"crc32":     func() hash.Hash { return crc32.NewIEEE() },
	"crc32c":    func() hash.Hash { return crc32.New(castagnoli) },
	"crc64nvme": func() hash.Hash { return crc64.New(nvme) },
	"md5":       md5.New,
	"sha-1":     sha1.New,
	"sha-256":   sha256.New,
	"sha-512":   sha512.New,
}

// Differs reads the whole object, and returns the first checksum that does not match its bytes, or
// nil if all match.
func (s Sums) Differs(read func(io.Writer) error) (*Sum, error) {
	hashes := make([]hash.Hash, len(s.Sums))
	all := make([]io.Writer, len(s.Sums))
	for i, sum := range s.Sums {
		hashes[i] = algorithms[sum.Algorithm]()
		all[i] = hashes[i]
	}
	if err := read(io.MultiWriter(all...)); err != nil {
		return nil, err
	}
	for i := range hashes {
		if !bytes.Equal(hashes[i].Sum(nil), s.Sums[i].Value) {
			return &s.Sums[i], nil
		}
	}
	return nil, nil
}

// add adds a checksum in base64, unless its algorithm is unknown or its length is wrong.
func (s *Sums) add(algorithm, value, where string) {
	algorithm = strings.ToLower(strings.TrimSpace(algorithm))
	make, known := algorithms[algorithm]
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	if !known || err != nil || len(b) != make().Size() {
		return
	}
	s.Sums = append(s.Sums, Sum{algorithm, b, where})
}

// conclude sets the reason if there is no checksum.
func (s *Sums) conclude(why string) Sums {
	if len(s.Sums) == 0 {
		s.Why = why
	}
	return *s
}

const noSum = "the service tells no checksum of it"

// WebSums reads the checksums of an answer to HEAD: Repr-Digest (RFC 9530), Digest (RFC 3230),
// Content-MD5 (RFC 2616), and X-Goog-Hash of Google's storage.
func WebSums(h http.Header) Sums {
	var s Sums
	for _, member := range members(h, "Repr-Digest") {
		algorithm, value, _ := strings.Cut(member, "=")
		value, _, _ = strings.Cut(value, ";")
		value = strings.TrimSpace(value)
		if len(value) > 1 && value[0] == ':' && value[len(value)-1] == ':' {
			s.add(algorithm, value[1:len(value)-1], "Repr-Digest")
		}
	}
	for _, member := range members(h, "Digest") {
		algorithm, value, _ := strings.Cut(member, "=")
		if algorithm = strings.ToLower(algorithm); algorithm == "sha" {
			algorithm = "sha-1"
		}
		s.add(algorithm, value, "Digest")
	}
	s.add("md5", h.Get("Content-MD5"), "Content-MD5")
	// X-Goog-Hash is the hash of the stored bytes. The bytes that are sent differ if the object is
	// stored compressed.
	if stored := h.Get("X-Goog-Stored-Content-Encoding"); stored == "" || stored == "identity" {
		for _, member := range members(h, "X-Goog-Hash") {
			algorithm, value, _ := strings.Cut(member, "=")
			s.add(algorithm, value, "x-goog-hash")
		}
	}
	return s.conclude(noSum)
}

// members returns the elements of a header that is a list.
func members(h http.Header, name string) (list []string) {
	for _, line := range h.Values(name) {
		for member := range strings.SplitSeq(line, ",") {
			list = append(list, strings.TrimSpace(member))
		}
	}
	return list
}

// BucketSums reads the checksums of an S3 answer to HEAD: those requested by X-Amz-Checksum-Mode,
// and an ETag that is the MD5 of the bytes. An object that was uploaded in parts may have only a
// checksum of the parts' checksums.
func BucketSums(h http.Header) Sums {
	var s Sums
	why := noSum
	parts := strings.EqualFold(h.Get("X-Amz-Checksum-Type"), "COMPOSITE")
	for _, algorithm := range []string{"CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"} {
		name := "X-Amz-Checksum-" + algorithm
		value := h.Get(name)
		switch {
		case value == "":
		case parts || strings.Contains(value, "-"):
			why = "its checksum is of its parts' checksums"
		default:
			s.add(strings.Replace(algorithm, "SHA", "SHA-", 1), value, strings.ToLower(name))
		}
	}
	if len(s.Sums) > 0 {
		return s
	}
	etag := strings.Trim(h.Get("ETag"), `"`)
	md5, err := hex.DecodeString(etag)
	encrypted := h.Get("X-Amz-Server-Side-Encryption")
	switch {
	case strings.Contains(etag, "-"):
		why = "it was uploaded in parts, and its ETag is of these"
	case err != nil || len(md5) != 16:
	case encrypted != "" && encrypted != "AES256" || h.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") != "":
		why = "it is stored encrypted, and its ETag is not of its bytes"
	default:
		s.Sums = append(s.Sums, Sum{"md5", slices.Clone(md5), "ETag"})
	}
	return s.conclude(why)
}
