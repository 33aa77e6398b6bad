package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/arrays"
	"github.com/lsiofs/lsiofs/pipeline/storage/fileset"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
)

// scheme is a kind of place for datasets, and the storages that they are read through, from the
// bottom up:
//
//	           open: what is listed            over: what records are read from
//	local      local                           retry
//	           local ──► held (--hold)         retry
//	           local ──► joined (--array)      retry
//	           folders (shards that are        retry
//	           directories: --format files)
//	           local ──► cubes (--format zarr) retry
//	           local ──► refs (.json, .zip)    retry
//	                 ──► cubes
//	s3, web    remote ──► s3                   nothing: remote retries itself
//	           remote ──► web
//	           remote ──► cubes, or refs and cubes
//
// cached is above remote, and above local if that is a network file system and the user has asked
// for a cache: listing, indexing and reading go through it (openCache).
//
// storage.Caps says what else each storage can do.
type scheme struct {
	// name is for reports. text is what comes before "://", "" for plain paths.
	name, text string
	// find finds what the mount's dataset name refers to, and opens what it needs for that.
	// found.close is nil if there is nothing to close.
	find func(ctx context.Context, m *mount) (found, error)
	// profile returns the reads that the storage at a root is fast at, and the measurements of it,
	// if there are any.
	profile func(root string, o *Options) (profile.Profile, []profile.Cell)
	// open opens the storage below a root. It stores its own files in indexDir, "" if nothing can
	// be stored.
	open func(m *mount, root, indexDir string) (storage.Storage, error)
	// over returns the layers above that storage through which records are read, which also close
	// it. The retry storage is nil if the storage itself retries.
	over func(storage.Storage) (storage.Storage, *retry.Storage)
}

// schemes are the supported schemes.
var schemes = []scheme{
	{name: "local", find: findLocal, profile: findProfile, open: openLocal, over: retry.Wrap},
	{name: "s3", text: "s3", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "s3", text: "s3+https", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "s3", text: "s3+http", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "web", text: "https", find: findAtService, profile: webProfile, open: openService, over: asItIs},
	{name: "web", text: "http", find: findAtService, profile: webProfile, open: openService, over: asItIs},
}

// schemeOf returns the scheme of a dataset. A name that exists in the file system is a path,
// whatever it looks like.
func schemeOf(dataset string) (*scheme, error) {
	text := ""
	if IsRemote(dataset) {
		text, _, _ = strings.Cut(strings.ToLower(dataset), "://")
	}
	if i := slices.IndexFunc(schemes, func(s scheme) bool { return s.text == text }); i >= 0 {
		return &schemes[i], nil
	}
	_, err := target.Parse(dataset)
	return nil, fmt.Errorf("dataset: %w", err)
}

// findLocal finds the directory that a dataset is in, absolute and without symbolic links.
func findLocal(_ context.Context, m *mount) (found, error) {
	t, err := discover.ParseTarget(m.spec.Dataset)
	return found{target: t}, err
}

// openLocal opens the storage of files, or of directories of files.
func openLocal(m *mount, root, indexDir string) (storage.Storage, error) {
	if f, ok := foldered(m.spec.Format); ok {
		s, err := fileset.Open(root, indexDir, f.FileFraming())
		if err != nil {
			return nil, err
		}
		t := m.target
		if err := t.Exclude(m.spec.Exclude); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.LeaveOut(t.LeavesOutFile)
		return s, nil
	}
	direct := local.Direct(m.spec.Direct)
	if m.spec.Format.Name == "zarr" && m.spec.Direct == spec.DirectAuto {
		direct = local.DirectOff // adjacent crops share chunks, which the page cache keeps
	}
	s, err := local.OpenAmong(root, m.engine, direct, max(m.siblings, 1))
	if err != nil {
		return nil, err
	}
	if len(m.spec.Format.Arrays) > 0 {
		return arrays.Wrap(s, npy.Framing{}), nil
	}
	if m.spec.Format.Name == "zarr" {
		return m.cubesOver(m.referencesOver(s), false), nil
	}
	if m.links != nil {
		return hardlink.Wrap(s, m.links), nil
	}
	if m.profile.Kind != profile.KindNetwork || !m.spec.Cache.Asked() {
		return s, nil
	}
	over, err := m.cacheOver(s, m.fileIdentity)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return over, nil
}

// foldered returns the requested format if its shards are directories.
func foldered(asked spec.Format) (format.Foldered, bool) {
	f, err := formats.New(asked)
	if err != nil {
		return nil, false // the catalog detects it, or reports the error
	}
	folders, ok := f.(format.Foldered)
	return folders, ok
}

// findProfile looks up which reads the file system of a directory is fast at. A problem with a
// stored profile is only logged.
func findProfile(root string, o *Options) (profile.Profile, []profile.Cell) {
	if o.Storage != nil {
		return *o.Storage, nil
	}
	f := profile.Find(root)
	if f.Problem != nil {
		o.Log.Warn(f.Problem.Error())
	}
	return f.Profile, f.Cells
}
