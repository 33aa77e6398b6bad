package profile

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"net/url"
	"path/filepath"
	"strings"
)

// Endpoint returns the place of a service, for the canonical URL of a dataset's root there
// (remote.Source.Name). Measurements of one dataset apply to the whole endpoint:
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

// FindEndpoint is FindEndpointIn for the user's directory. If the user has none, it returns
// defaults.
func FindEndpoint(kind Kind, root string) Found {
	dir, err := Dir()
	if err != nil {
		dir = ""
	}
	return FindEndpointIn(dir, kind, root)
}

// FindEndpointIn returns the profile of a service: the one stored in dir for its endpoint, or the
// defaults of its kind. An unusable file is reported in Problem.
func FindEndpointIn(dir string, kind Kind, root string) Found {
	return findAt(dir, Endpoint(kind, root))
}

// findAt returns the profile stored for a place in dir; dir is "" if there is none.
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
