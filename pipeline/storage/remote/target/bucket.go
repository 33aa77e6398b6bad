package target

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Bucket is a location in a bucket.
type Bucket struct {
	// Endpoint is the URL of the service if the name contains it, otherwise "".
	Endpoint string
	Name     string // of the bucket
	// Key is an object or a folder, without slashes at its ends; "" is the whole bucket. It is a
	// folder if Folder is set or if there is a Pattern; otherwise only the service knows.
	Key    string
	Folder bool
	// Pattern selects objects by what follows Key and a slash; "" selects all.
	Pattern string
}

// patternSigns are the characters that make a component of a path a pattern.
const patternSigns = `*?[{\`

// Root returns the URL of the folder, or of what may be one.
func (b Bucket) Root() string {
	root := "s3://" + b.Name
	if b.Endpoint != "" {
		root = "s3+" + b.Endpoint + "/" + b.Name
		if _, host, _ := strings.Cut(b.Endpoint, "://"); strings.Contains(host, "/") { // otherwise it would be ambiguous where the bucket begins
			root = "s3+" + b.Endpoint + "//" + b.Name
		}
	}
	if b.Key == "" {
		return root
	}
	return root + "/" + b.Key
}

// Split returns the folder that contains the object Key, and the object's name there.
func (b Bucket) Split() (folder Bucket, name string) {
	i := strings.LastIndexByte(b.Key, '/')
	return Bucket{Endpoint: b.Endpoint, Name: b.Name, Key: b.Key[:max(i, 0)], Folder: true}, b.Key[i+1:]
}

func parseBucket(rest string) (Bucket, error) {
	name, path, _ := strings.Cut(rest, "/")
	if strings.Contains(name, "@") {
		return Bucket{}, fmt.Errorf("s3:// takes no user name and password: credentials come from the environment, from ~/.aws or from the machine")
	}
	if strings.HasPrefix(strings.ToLower(rest), "arn:") {
		return Bucket{}, fmt.Errorf("s3:// takes no ARN: give the alias of the access point instead of a bucket's name")
	}
	if err := checkBucketName(name); err != nil {
		return Bucket{}, err
	}
	b := Bucket{Name: name, Folder: path == "" || strings.HasSuffix(path, "/")}
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return b, nil
	}
	if err := checkComponents(path, "the path in s3://"+name); err != nil {
		return Bucket{}, err
	}
	components := strings.Split(path, "/")
	plain := 0
	for plain < len(components) && !strings.ContainsAny(components[plain], patternSigns) {
		plain++
	}
	b.Key = strings.Join(components[:plain], "/")
	if plain == len(components) {
		return b, nil
	}
	if b.Folder {
		return Bucket{}, fmt.Errorf("the pattern in s3://%s ends with a slash, and chooses objects: end it with /** for all that lies below", name)
	}
	b.Folder, b.Pattern = true, strings.Join(components[plain:], "/")
	return b, nil
}

// checkBucketName accepts the names that S3 and compatible servers allow.
func checkBucketName(name string) error {
	if name == "" {
		return fmt.Errorf("s3:// has no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
	}
	if strings.ContainsAny(name, patternSigns+"]}") {
		return fmt.Errorf("s3://%s: the name of the bucket can't be a pattern", name)
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		return fmt.Errorf("s3://%s has a port: write s3://BUCKET, and give the server by --endpoint http://%s:…", name, host)
	}
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && c != '.' && c != '-' && c != '_' {
			return fmt.Errorf("s3://%s: a bucket's name has letters, digits, dots, hyphens and underscores alone", name)
		}
	}
	if len(name) < 3 || len(name) > 255 || name[0] == '.' || name[0] == '-' || strings.Contains(name, "..") {
		return fmt.Errorf("s3://%s: that is no name of a bucket", name)
	}
	return nil
}

// Amazon parses a host name of Amazon S3, in lower case and without a port: it returns the bucket
// and the region, each "" if the host does not contain it.
//
//	s3.amazonaws.com                     s3.eu-west-1.amazonaws.com        s3-eu-west-1.amazonaws.com
//	bucket.s3.eu-west-1.amazonaws.com    s3.dualstack.eu-west-1.amazonaws.com    s3.cn-north-1.amazonaws.com.cn
func Amazon(host string) (bucket, region string, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(host, ".cn"), ".amazonaws.com")
	if !ok {
		return "", "", false
	}
	labels := strings.Split(rest, ".")
	n := len(labels)
	if isRegion(labels[n-1]) {
		region, n = labels[n-1], n-1
	}
	if n > 0 && region != "" && labels[n-1] == "dualstack" {
		n--
	}
	if n == 0 {
		return "", "", false
	}
	switch service := labels[n-1]; {
	case service == "s3" || service == "s3-fips" || service == "s3-accelerate":
	case region == "" && strings.HasPrefix(service, "s3-") && isRegion(service[len("s3-"):]):
		region = service[len("s3-"):]
	default:
		return "", "", false
	}
	return strings.Join(labels[:n-1], "."), region, true
}

// isRegion reports whether a label of a host name looks like a region: us-east-1.
func isRegion(label string) bool {
	return strings.Count(label, "-") >= 2 && isDigit(label[len(label)-1]) && !strings.HasPrefix(label, "s3-")
}

// bucketAt returns the name to write instead of the URL of a folder or pattern in a bucket at
// Amazon or Google, or "" for any other URL.
func bucketAt(host, raw string) string {
	path, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	bucket, region, ok := Amazon(host)
	switch {
	case host == "storage.googleapis.com" && path != "":
		return "s3+https://" + host + "/" + path
	case !ok || bucket == "" && path == "":
		return ""
	case bucket != "":
		path = bucket + "/" + path
	}
	name := "s3://" + path
	if region != "" {
		name += " --region " + region
	}
	return name
}

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
