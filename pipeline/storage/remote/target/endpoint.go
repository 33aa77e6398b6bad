package target

import (
	"fmt"
	"net/url"
	"strings"
)

// ParseEndpoint parses the URL of an S3-compatible service: https://HOST, with a port and a path if
// the service has them. The error is meant to follow the name of the setting, and contains no user
// name, password or query.
func ParseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("is no URL of a server: write https://HOST or http://HOST:PORT")
	case u.User != nil:
		return nil, fmt.Errorf("has a user name in it: credentials come from the environment, from ~/.aws or from the machine")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("has more than a server and a path in it: write %s://%s%s", u.Scheme, u.Host, u.EscapedPath())
	}
	path := strings.Trim(u.Path, "/")
	if path == "" {
		return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
	}
	if Escape(path) != path {
		return nil, fmt.Errorf("has a path with other signs than letters, digits, - . _ ~ and slashes")
	}
	if err := checkComponents(path, "the path"); err != nil {
		return nil, fmt.Errorf("can't be used: %w", err)
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: "/" + path}, nil
}

// parseAtService parses what follows s3+https://: the service, and a bucket as after s3://. Two
// slashes end the path of a service that has one.
func parseAtService(scheme, rest string) (Bucket, error) {
	host, path, _ := strings.Cut(rest, "/")
	service := strings.TrimPrefix(scheme, "s3+") + "://" + host
	if below, after, found := strings.Cut(path, "//"); found {
		service, path = service+"/"+below, after
	}
	u, err := ParseEndpoint(service)
	if err != nil {
		return Bucket{}, fmt.Errorf("the service in the %s:// name %w", scheme, err)
	}
	b, err := parseBucket(path)
	if err != nil {
		return Bucket{}, fmt.Errorf("%s://%s (write %s://HOST/BUCKET/PREFIX): %w", scheme, u.Host, scheme, err)
	}
	b.Endpoint = u.String()
	return b, nil
}
