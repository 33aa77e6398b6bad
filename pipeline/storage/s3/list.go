package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// pageKeys is the most that S3 lists at once.
	pageKeys = 1000
	// flatPages are listed one after the other, at about 100 ms each, before a listing
	// is split: most datasets end before.
	flatPages = 20
	// listsAtOnce is how many parts of a listing go on at a time.
	listsAtOnce = 16
	// maxPageBytes bounds a page: 1000 keys of 1024 bytes, url-encoded, and the rest.
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

// List lists all objects below the folder but those that can be no file: with keys that
// end in a slash, or have components that are empty, begin with a dot, or are no UTF-8.
func (s *Source) List(ctx context.Context, visit func(remote.Listed) error) error {
	l := &listing{source: s, visit: visit, sorted: true}
	if err := l.all(ctx); err != nil {
		return fmt.Errorf("listing %s: %w", s.Name(), err)
	}
	return nil
}

// listing is one run of List.
type listing struct {
	source *Source

	mu     sync.Mutex
	visit  func(remote.Listed) error
	failed bool

	// What the pages of the flat part have shown.
	last   string // the last key
	sorted bool   // keys came in the order of their bytes
}

// all lists flat, and splits what is left after some pages by folders.
func (l *listing) all(ctx context.Context) error {
	token := ""
	for n := 0; ; n++ {
		if n >= flatPages && l.sorted {
			return l.split(ctx, l.source.prefix)
		}
		p, err := l.source.page(ctx, l.source.prefix, "", "", token)
		if err != nil {
			return err
		}
		for _, o := range p.Contents {
			l.sorted = l.sorted && o.Key > l.last
			l.last = o.Key
			if err := l.take(ctx, o.Listed); err != nil {
				return err
			}
		}
		if token = p.next; token == "" {
			return nil
		}
	}
}

// split lists what comes behind the last key, each folder by itself.
func (l *listing) split(ctx context.Context, prefix string) error {
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	err := l.pages(all, prefix, "/", func(folder string) {
		if folder < l.last && !strings.HasPrefix(l.last, folder) {
			return // all of it was listed
		}
		group.Go(func() error {
			return l.pages(all, folder, "", nil)
		})
	})
	if failed := group.Wait(); failed != nil { // which may be why the other has ended
		return failed
	}
	return err
}

// pages lists what is below a prefix and behind the last key: with a delimiter, what is
// directly below, with the folders that are.
func (l *listing) pages(ctx context.Context, prefix, delimiter string, folder func(string)) error {
	after, token := "", ""
	if strings.HasPrefix(l.last, prefix) {
		after = l.last
	}
	for {
		p, err := l.source.page(ctx, prefix, delimiter, after, token)
		if err != nil {
			return err
		}
		for _, o := range p.Contents {
			if o.Key <= l.last {
				continue // not all services begin where they are told
			}
			if err := l.take(ctx, o.Listed); err != nil {
				return err
			}
		}
		for _, f := range p.folders {
			folder(f)
		}
		if token = p.next; token == "" {
			return nil
		}
	}
}

// take visits one object, alone, unless it is to be passed over.
func (l *listing) take(ctx context.Context, o remote.Listed) error {
	for component := range strings.SplitSeq(o.Path, "/") {
		if component == "" || component[0] == '.' || strings.ContainsRune(component, 0) {
			return nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed {
		return context.Canceled // what has failed is told by another
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.visit(o); err != nil {
		l.failed = true
		return err
	}
	return nil
}

// found is an object of a page.
type found struct {
	remote.Listed
	Key string
}

// read is a page that was understood.
type read struct {
	Contents []found
	folders  []string
	next     string // the token of the page that follows, "" for none
}

// page asks for one page of a listing.
func (s *Source) page(ctx context.Context, prefix, delimiter, after, token string) (read, error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(pageKeys)}, "prefix": {prefix}}
	for name, value := range map[string]string{"delimiter": delimiter, "start-after": after, "continuation-token": token} {
		if value != "" {
			query.Set(name, value)
		}
	}
	// Else an object that was restored looks like one that is to be.
	header := http.Header{"X-Amz-Optional-Object-Attributes": {"RestoreStatus"}}
	resp, err := s.ask(ctx, http.MethodGet, "", query, header)
	if err != nil {
		return read{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		a := remote.AnswerOf(resp, "")
		a.ReadCode(resp.Header)
		return read{}, &remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter}
	}
	var p page
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxPageBytes)).Decode(&p); err != nil {
		if ctx.Err() != nil {
			return read{}, ctx.Err()
		}
		return read{}, fmt.Errorf("a page can't be read: %w", remote.Clean(err))
	}
	r, err := s.understand(p, prefix)
	if err == nil && r.next != "" && r.next == token {
		err = remote.Refuse("the service gives the same page again and again")
	}
	return r, err
}

// understand decodes a page.
func (s *Source) understand(p page, prefix string) (read, error) {
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

// archived says whether objects of a storage class are to be restored before they can
// be read. GLACIER_IR, which is read at once, is not among them.
func archived(class string) bool { return class == "GLACIER" || class == "DEEP_ARCHIVE" }
