// Package target parses the names of datasets in buckets and on web servers, such as
// s3://bucket/train/. It looks only at the text and makes no requests. Its errors state what to
// write instead, and never contain user names, passwords or queries.
//
//	s3://bucket                     the whole bucket
//	s3://bucket/train/              what is below train/
//	s3://bucket/train               the same, or an object of this name: the service knows
//	s3://bucket/train/*.tar         patterns as for files: * ** ? [] {a,b} {000..146} \
//	s3+https://host/bucket/train    the same at a service of one's own
//	s3+https://host/path//bucket    one whose interface is below a path of its host
//	https://host/train/000.tar      one file
//	https://host/train/{000..146}.tar?sig=…   files by number; ? begins the query
//	https://host/train/list.txt     a list of files; .json: a list of shards of wids
package target

import (
	"fmt"
	"strings"
)

// Target is what a dataset's name refers to: one of its fields is set.
type Target struct {
	Bucket *Bucket
	Web    *Web
}

// IsRemote reports whether a dataset's name has a scheme, as in s3://bucket, and so is not a path.
// If a file with this very name exists, the caller should prefer it.
func IsRemote(name string) bool {
	_, _, ok := cutScheme(name)
	return ok || isJoined(name)
}

// isJoined reports whether a name joins others by "::", as in fsspec and webdataset. A key may
// contain "::", but not a URL after it.
func isJoined(name string) bool {
	for _, after, found := strings.Cut(name, "::"); found; _, after, found = strings.Cut(after, "::") {
		if _, _, is := cutScheme(after); is {
			return true
		}
	}
	return false
}

// refuseJoined returns the error for a name that isJoined.
func refuseJoined(name string) error {
	if _, _, is := cutScheme(name); !is {
		first, _, _ := strings.Cut(name, "::")
		return fmt.Errorf("the dataset's name begins with %s::, as fsspec has them: write the URL alone; what is read of a service is cached anyway (lsiofs help remote)", first)
	}
	return fmt.Errorf("the dataset's name joins URLs by :: and one is taken: name files of one folder by a pattern, as in s3://BUCKET/{000..146}.tar, or mix datasets with --mix")
}

// cutScheme splits name after its scheme, which is returned in lower case.
func cutScheme(name string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(name, "://")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return "", "", false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !isLetter(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

// Parse parses a name that IsRemote.
func Parse(name string) (Target, error) {
	if isJoined(name) {
		return Target{}, refuseJoined(name)
	}
	scheme, rest, ok := cutScheme(name)
	if !ok {
		return Target{}, fmt.Errorf("the dataset has no scheme such as s3:// or https://")
	}
	for i := range len(rest) {
		if rest[i] < ' ' || rest[i] == 0x7f {
			return Target{}, fmt.Errorf("the %s:// dataset's name has a control character in it", scheme)
		}
	}
	switch scheme {
	case "s3+https", "s3+http":
		b, err := parseAtService(scheme, rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Bucket: &b}, nil
	case "s3":
		b, err := parseBucket(rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Bucket: &b}, nil
	case "http", "https":
		w, err := parseWeb(scheme, rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Web: &w}, nil
	case "gs", "gcs":
		return Target{}, fmt.Errorf("%s:// is not supported yet: Google's storage answers s3:// too, with --endpoint https://storage.googleapis.com and HMAC keys", scheme)
	case "az", "abfs", "abfss":
		return Target{}, fmt.Errorf("%s:// is not supported: give the https:// URL of the container, with its SAS token as the query", scheme)
	case "s3a", "s3n":
		return Target{}, fmt.Errorf("%s:// is not supported: write s3://", scheme)
	case "hf":
		return Target{}, fmt.Errorf("hf:// is not supported yet: download the files (hf download --repo-type dataset), or copy them to a bucket")
	case "file":
		return Target{}, fmt.Errorf("file:// is not supported: give the path alone")
	}
	return Target{}, fmt.Errorf("%s:// is not supported: datasets are paths, s3:// buckets, and files by https:// or http://", scheme)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// checkComponents rejects paths that no shard can have: a listing would skip them, or they would be
// another object to the service.
func checkComponents(path, where string) error {
	for component := range strings.SplitSeq(path, "/") {
		switch component {
		case "":
			return fmt.Errorf("%s has two slashes in a row, or begins with one: objects with empty components in their names are not read", where)
		case ".", "..":
			return fmt.Errorf("%s has the component %q: write the path without it", where, component)
		}
	}
	return nil
}
