package s3

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// pageKeys is the most that S3 lists per page.
	pageKeys = 1000
	// flatPages are listed one after another, at about 100 ms each, before a listing is split: most
	// datasets have fewer.
	flatPages = 20
	// maxPageBytes bounds a page: 1000 keys of 1024 bytes, url-encoded, plus the other fields.
	maxPageBytes = 16 << 20
)

// page is one answer to a listing. Keys may be url-encoded.
type page struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key           string
		LastModified  string
		ETag          string
		Size          string
		StorageClass  string
		RestoreStatus struct {
			IsRestoreInProgress bool
			RestoreExpiryDate   string
		}
	}
	CommonPrefixes []struct{ Prefix string }
}

// List lists a page of all objects below the folder, including those whose keys are not paths. A
// long listing is split by folders, whose pages are listed in parallel.
func (s *Source) List(ctx context.Context, name string, visit func(remote.Listed) error) (next []string, err error) {
	at := stretch{Prefix: s.prefix}
	if name != "" {
		if err := json.Unmarshal([]byte(name), &at); err != nil {
			return nil, remote.Refuse("there is no page of such a name: %w", err)
		}
	}
	after, delimiter := "", ""
	if at.Behind && strings.HasPrefix(at.Last, at.Prefix) {
		after = at.Last
	}
	if at.Folders {
		delimiter = "/"
	}
	p, err := s.page(ctx, at.Prefix, delimiter, after, at.Token)
	if err != nil {
		return nil, err
	}
	if err := at.follow(p); err != nil {
		return nil, err
	}
	from := at.Last
	for _, o := range p.Contents {
		if at.Behind && o.Key <= from {
			continue // not all services honour start-after
		}
		if !at.Behind {
			at.Unsorted = at.Unsorted || o.Key <= at.Last && at.Last != ""
			at.Last = o.Key
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := visit(o.Listed); err != nil {
			return nil, err
		}
	}
	return at.next(p), nil
}

// stretch identifies a page of a listing. As JSON, it is the page's name.
type stretch struct {
	Prefix string
	Token  string // where it continues; "": at the beginning
	Flat   int    // number of pages before it
	// Last is the last key of the flat part. Behind means that only keys after it are listed.
	// Unsorted means that keys did not arrive in the order of their bytes.
	Last             string
	Behind, Unsorted bool
	Folders          bool // list what is directly below, and the folders there
	// Kept is the digest of an earlier page, Age is how many pages ago that was, and Span how many
	// pages old it may become.
	Kept      uint64
	Age, Span int
	Empty     int // number of consecutive empty pages before it
}

// maxEmpty is how many empty pages may follow each other. Services return empty pages if they have
// much to skip, such as deleted versions.
const maxEmpty = 10_000

// follow returns an error if the listing does not end. It detects that the contents of pages
// repeat, whatever the service's tokens are, with Brent's cycle detection: it remembers one page,
// and replaces it whenever it has become twice as old as the previous one was.
func (at *stretch) follow(p read) error {
	h := fnv.New64a()
	for _, o := range p.Contents {
		_, _ = io.WriteString(h, o.Key+"\n")
	}
	for _, folder := range p.folders {
		_, _ = io.WriteString(h, folder+"\n")
		if len(folder) <= len(at.Prefix) {
			return remote.Refuse("the listing does not end: the service says that %q lies in itself", folder)
		}
	}
	if at.Empty++; len(p.Contents)+len(p.folders) > 0 {
		at.Empty = 0
	} else {
		_, _ = io.WriteString(h, p.next)
	}
	digest := h.Sum64() | 1
	switch {
	case digest == at.Kept:
		return remote.Refuse("the listing does not end: the service gives the same keys again and again")
	case at.Empty > maxEmpty:
		return remote.Refuse("the listing does not end: the service gives page after page with nothing in it")
	}
	if at.Age++; at.Age > at.Span {
		at.Kept, at.Age, at.Span = digest, 0, max(2*at.Span, 1)
	}
	return nil
}

// next returns the pages that follow a page.
func (at stretch) next(p read) (pages []string) {
	add := func(to stretch) {
		name, err := json.Marshal(to)
		if err != nil {
			panic(err) // a struct of strings and numbers
		}
		pages = append(pages, string(name))
	}
	for _, folder := range p.folders {
		if folder > at.Last || strings.HasPrefix(at.Last, folder) { // otherwise all of it was listed
			add(stretch{Prefix: folder, Last: at.Last, Behind: true})
		}
	}
	if p.next == "" {
		return pages
	}
	at.Token = p.next
	if at.Flat++; !at.Behind && at.Flat >= flatPages && !at.Unsorted {
		at = stretch{Prefix: at.Prefix, Last: at.Last, Behind: true, Folders: true}
	}
	add(at)
	return pages
}

// found is an object on a page.
type found struct {
	remote.Listed
	Key string
}

// read is a parsed page.
type read struct {
	Contents []found
	folders  []string
	next     string // token of the next page, "" if there is none
}

// page requests one page of a listing.
func (s *Source) page(ctx context.Context, prefix, delimiter, after, token string) (read, error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(pageKeys)}, "prefix": {prefix}}
	for name, value := range map[string]string{"delimiter": delimiter, "start-after": after, "continuation-token": token} {
		if value != "" {
			query.Set(name, value)
		}
	}
	// Without this, restored objects look like archived ones.
	header := http.Header{"X-Amz-Optional-Object-Attributes": {"RestoreStatus"}}
	resp, err := s.ask(ctx, http.MethodGet, "", query, header)
	if err != nil {
		return read{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		a := remote.AnswerOf(resp, "")
		a.ReadCode(resp.Header)
		s.judge(&a, resp.Request)
		return read{}, failure(a)
	}
	if remote.IsPage(resp.Header) {
		return read{}, remote.Refuse(aPage, "listing")
	}
	var p page
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxPageBytes)).Decode(&p); err != nil {
		if ctx.Err() != nil {
			return read{}, ctx.Err()
		}
		if _, other := errors.AsType[xml.UnmarshalError](err); other { // the XML is complete, but is something else
			return read{}, remote.Refuse("a page can't be read: %w: look at --endpoint", remote.Clean(err))
		}
		return read{}, fmt.Errorf("a page can't be read: %w", remote.Clean(err))
	}
	r, err := s.understand(p, prefix, resp.Header)
	if err == nil && r.next != "" && r.next == token {
		err = remote.Refuse("the listing does not end: the service gives the same page again and again")
	}
	return r, err
}

// understand decodes a page. header is that of its answer.
func (s *Source) understand(p page, prefix string, header http.Header) (read, error) {
	decode := func(name string) (string, error) {
		if p.EncodingType == "url" {
			decoded, err := url.QueryUnescape(name)
			if err != nil {
				return "", remote.Refuse("a key is not url-encoded, as the service says it is")
			}
			name = decoded
		}
		if !strings.HasPrefix(name, prefix) {
			return "", remote.Refuse("the service lists a key that does not begin with %q, as asked", prefix)
		}
		return name, nil
	}
	r := read{Contents: make([]found, 0, len(p.Contents))}
	for _, c := range p.Contents {
		key, err := decode(c.Key)
		if err != nil {
			return r, err
		}
		size, err := strconv.ParseInt(c.Size, 10, 64)
		if err != nil || size < 0 {
			return r, remote.Refuse("the service does not say how large %q is", key)
		}
		o := found{Key: key, Listed: remote.Listed{Path: strings.TrimPrefix(key, s.prefix), SizeBytes: size}}
		if modified, err := time.Parse(time.RFC3339Nano, c.LastModified); err == nil {
			o.Modified = modified.UTC()
		}
		if c.ETag != "" {
			o.Validator = remote.ValidatorOf(http.Header{"Etag": {quoted(c.ETag)}})
		}
		if o.Validator == "" {
			o.Validator = remote.ModifiedValidator(o.Modified)
		}
		o.Unsettled = remote.Unsettled(header, o.Modified, o.Validator)
		restored := !c.RestoreStatus.IsRestoreInProgress && c.RestoreStatus.RestoreExpiryDate != ""
		o.Archived = archived(c.StorageClass) && !restored
		r.Contents = append(r.Contents, o)
	}
	for _, c := range p.CommonPrefixes {
		folder, err := decode(c.Prefix)
		if err != nil {
			return r, err
		}
		r.folders = append(r.folders, folder)
	}
	if p.IsTruncated {
		if r.next = p.NextContinuationToken; r.next == "" {
			return r, remote.Refuse("the service cuts the listing short, and does not say how it goes on")
		}
	}
	return r, nil
}

// archived reports whether objects of a storage class must be restored before they can be read.
// GLACIER_IR is not one of them, because it can be read at once.
func archived(class string) bool { return class == "GLACIER" || class == "DEEP_ARCHIVE" }
