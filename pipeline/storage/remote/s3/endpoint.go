package s3

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/web"
)

// globalHost answers for buckets of all regions, if only with their location.
const globalHost = "s3.amazonaws.com"

// defaultRegion is the region for which requests to non-Amazon services are signed.
const defaultRegion = "us-east-1"

// place is where a bucket is: at Amazon, by region, or at another service.
type place struct {
	bucket   string
	endpoint *url.URL // nil: Amazon
	region   string   // "" for Amazon if not known yet
	// forced means that the user set the region for this mount.
	forced bool
	inHost bool // requests name the bucket in the host, otherwise in the path
}

// variable returns an environment variable. Variables that are made from files often end in a
// newline.
func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// locate determines a bucket's place from options, environment and profile, in this order.
func locate(b target.Bucket, o Options, p profile) (place, error) {
	bucket := b.Name
	at := place{bucket: bucket, region: o.Region, forced: o.Region != ""}
	if strings.HasSuffix(bucket, "--x-s3") {
		return at, remote.Refuse("s3://%s: directory buckets (S3 Express) are not supported yet: use a general purpose bucket", bucket)
	}
	for _, said := range []string{variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), p.region} {
		if at.region == "" {
			at.region = said
		}
	}
	if strings.ContainsFunc(at.region, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' }) {
		return at, remote.Refuse("region %q is none: regions are such as us-east-1", at.region)
	}
	endpoint, from := b.Endpoint, "the dataset's name"
	if endpoint == "" {
		endpoint, from = o.Endpoint, "--endpoint"
	}
	for _, c := range []struct{ value, from string }{
		{variable("AWS_ENDPOINT_URL_S3"), "AWS_ENDPOINT_URL_S3"}, {variable("AWS_ENDPOINT_URL"), "AWS_ENDPOINT_URL"}, {p.endpoint, "endpoint_url of the profile"},
	} {
		if endpoint == "" && !p.unplaced {
			endpoint, from = c.value, c.from
		}
	}
	at.inHost = ofHost(bucket) && endpoint == ""
	style, by := o.Addressing, "--addressing"
	if style == "" || style == "auto" {
		style, by = cmp.Or(p.addressing, "auto"), "addressing_style of the profile"
	}
	switch style {
	case "auto":
	case "path", "virtual":
		at.inHost = style == "virtual"
	default:
		return at, remote.Refuse("%s (%s) must be auto, path or virtual", by, style)
	}
	if endpoint == "" {
		return at, nil
	}
	u, err := target.ParseEndpoint(endpoint)
	if err != nil {
		return at, remote.Refuse("%s %w", from, err)
	}
	at.endpoint = u
	if _, region, amazon := target.Amazon(u.Hostname()); amazon && region != "" && !at.forced {
		at.region = region
	}
	if at.region == "" {
		at.region = defaultRegion
	}
	if at.inHost && net.ParseIP(u.Hostname()) != nil {
		return at, remote.Refuse("%s virtual puts the bucket before the host's name, and %s has an address: write the service's name there", by, from)
	}
	return at, nil
}

// name returns the canonical URL of a folder of the bucket. If the service is not Amazon, the URL
// includes it: its buckets are not Amazon's buckets of the same name.
func (p place) name(folder string) string {
	b := target.Bucket{Name: p.bucket, Key: strings.TrimSuffix(folder, "/")}
	if p.endpoint != nil {
		b.Endpoint = p.endpoint.String()
	}
	return b.Root()
}

// url returns the URL of an object, or, if key is "", of the bucket.
func (p place) url(key string) *url.URL {
	u := url.URL{Scheme: "https", Host: "s3." + p.region + ".amazonaws.com"}
	if strings.HasPrefix(p.region, "cn-") {
		u.Host += ".cn"
	}
	path := "/" + key
	if p.endpoint != nil {
		u.Scheme, u.Host = p.endpoint.Scheme, p.endpoint.Host
	}
	if p.inHost {
		u.Host = p.bucket + "." + u.Host
	} else {
		path = "/" + p.bucket + path
	}
	if p.endpoint != nil {
		path = p.endpoint.Path + path
	}
	u.Path, u.RawPath = path, escape(path)
	return &u
}

// ofHost reports whether a bucket's name can be part of a host name that Amazon's certificates
// cover.
func ofHost(bucket string) bool {
	return len(bucket) <= 63 && !strings.ContainsFunc(bucket, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// regionHeader is the header with a bucket's region. Almost every answer to a request for a bucket
// has it.
const regionHeader = "X-Amz-Bucket-Region"

// askRegion asks Amazon for the region of a bucket, which needs no credentials.
func askRegion(ctx context.Context, t http.RoundTripper, bucket string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+globalHost+"/"+bucket, nil)
	if err != nil {
		return "", remote.Clean(err)
	}
	request.Header.Set("User-Agent", userAgent)
	resp, err := t.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("asking for the region of s3://%s: %w", bucket, remote.Clean(err))
	}
	_ = resp.Body.Close()
	if region := resp.Header.Get(regionHeader); region != "" {
		return region, nil
	}
	if resp.StatusCode == http.StatusNotFound {
		return "", remote.Refuse("s3://%s: %w: there is no such bucket", bucket, &remote.StatusError{Status: resp.StatusCode, Code: "NoSuchBucket"})
	}
	return "", fmt.Errorf("asking for the region of s3://%s: %w: --region gives it", bucket, &remote.StatusError{Status: resp.StatusCode})
}

// Locate returns where a bucket is according to the settings, without making a request: host is the
// host of its service, or, for Amazon, the bucket's name; at is the URL of its requests, which is
// unique to the bucket.
func Locate(b target.Bucket, o Options) (host, at string, err error) {
	p, err := readProfile()
	if err != nil {
		return "", "", err
	}
	where, err := locate(b, o, p)
	if err != nil {
		return "", "", err
	}
	host, at = "s3://"+b.Name, where.url("").String()
	if where.endpoint != nil {
		host = where.endpoint.Host
	}
	return host, at, nil
}

// maxRedirects is far more than any service needs.
const maxRedirects = 10

// send makes a request at u and follows redirects: some services redirect if another of their nodes
// has the object. It returns the last answer, with the request that it is for.
//
// A signature is for one host, so each request is signed again. A host that is not the service's
// gets no signature and no session token: the query of the redirect has what it needs.
func (s *Source) send(ctx context.Context, at place, method string, u *url.URL, header http.Header) (*http.Response, error) {
	var from []string
	region := at.region
	for sign := !s.options.Anonymous; ; {
		resp, err := s.once(ctx, method, u, header, region, sign)
		if err != nil || !at.leadsOn(resp) {
			return resp, err
		}
		web.Discard(resp)
		to, err := web.Follow(u, resp.Header.Get("Location"))
		if err != nil {
			return nil, err
		}
		from = append(from, u.String())
		switch {
		case slices.Contains(from, to.String()):
			return nil, remote.Refuse("the service redirects in a circle: %s leads back to %s: look at --endpoint", u.Host, to.Host)
		case len(from) > maxRedirects:
			return nil, remote.Refuse("the service redirects more than %d times: the last redirect leads to %s: look at --endpoint", maxRedirects, to.Host)
		}
		if said := resp.Header.Get(regionHeader); said != "" {
			region = said
		}
		sign = !s.options.Anonymous && at.owns(to) && !isSigned(to)
		if sign {
			to.RawPath = escape(to.Path) // the form that is signed
		}
		for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-Sha256"} {
			header.Del(name)
		}
		u = to
	}
}

// once makes one request.
func (s *Source) once(ctx context.Context, method string, u *url.URL, header http.Header, region string, sign bool) (*http.Response, error) {
	request := (&http.Request{
		Method: method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if sign {
		value, err := s.keys.get(ctx)
		if err != nil {
			return nil, err
		}
		header.Set("X-Amz-Content-Sha256", nothing)
		request = signer.SignV4(*request, value.AccessKeyID, value.SecretAccessKey, value.SessionToken, region)
	}
	resp, err := s.options.Transport.RoundTrip(request)
	if err != nil {
		return nil, remote.Clean(err)
	}
	resp.Request = request
	return resp, nil
}

// leadsOn reports whether to follow an answer's redirect. If Amazon names another region, later
// requests go there instead (Refresh).
func (p place) leadsOn(resp *http.Response) bool {
	if !web.Redirects(resp.StatusCode) || resp.Header.Get("Location") == "" {
		return false
	}
	region := resp.Header.Get(regionHeader)
	return p.endpoint != nil || region == "" || region == p.region
}

// owns reports whether a URL belongs to the service itself: same host or a subdomain of it, same
// scheme and port.
func (p place) owns(u *url.URL) bool {
	host := strings.ToLower(u.Host)
	if p.endpoint != nil {
		own := p.endpoint.Host
		if short, err := target.Host(p.endpoint.Scheme, own); err == nil {
			own = short // without the scheme's default port, as web.Follow returns it
		}
		return u.Scheme == p.endpoint.Scheme && (host == own || strings.HasSuffix(host, "."+own))
	}
	_, _, amazon := target.Amazon(host)
	return u.Scheme == "https" && amazon
}

// isSigned reports whether a URL has a signature in its query, in addition to which there must be
// no other.
func isSigned(u *url.URL) bool {
	query := u.Query()
	return query.Has("X-Amz-Signature") || query.Has("Signature") || query.Has("X-Goog-Signature")
}
