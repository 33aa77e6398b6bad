package profile

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"net/url"
	"path/filepath"
	"strings"
)

// Endpoint is the place of a service, by the canonical URL of a dataset's root there
// (remote.Source.Name). What was measured of one dataset is good for all of the endpoint:
//
//	s3://bucket/train            s3://bucket     a bucket of Amazon's, which is in one region
//	s3+https://host/bucket/train s3+https://host
//	https://host:8080/train      https://host:8080
func Endpoint(kind Kind, root string) Place {
	scheme, rest, ok := strings.Cut(root, "://")
	if !ok {
		return Place{Kind: kind}
	}
	host, _, _ := strings.Cut(rest, "/")
	name := scheme + "://" + host
	if u, err := url.Parse(name); err != nil || u.User != nil || host == "" {
		return Place{Kind: kind}
	}
	return Place{Kind: kind, FileSystem: scheme, Device: host, Identity: "endpoint " + name}
}

// FindEndpoint is FindEndpointIn for the user's directory. If the user has none, it gives
// defaults.
func FindEndpoint(kind Kind, root string) Found {
	dir, err := Dir()
	if err != nil {
		dir = ""
	}
	return FindEndpointIn(dir, kind, root)
}

// FindEndpointIn gives the profile of a service: the one stored in dir for its endpoint, or
// the defaults of its kind. An unusable file is reported in Problem.
func FindEndpointIn(dir string, kind Kind, root string) Found {
	return findAt(dir, Endpoint(kind, root))
}

// findAt is what is stored for a place in dir, "" for nowhere.
func findAt(dir string, place Place) Found {
	f := Found{Profile: Defaults(place.Kind), Place: place}
	if dir == "" || place.Identity == "" {
		return f
	}
	file := filepath.Join(dir, fileName(place.Identity))
	s, err := load(file, place)
	switch {
	case err == nil:
		f.Profile, f.File, f.Cells = s.Profile, file, s.Cells
	case !errors.Is(err, iofs.ErrNotExist):
		f.Problem = fmt.Errorf("storage profile %s is ignored: %w; measure again with lsiofs tune, or remove it", file, err)
	}
	return f
}
