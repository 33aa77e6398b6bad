package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/folders"
	"github.com/lsiofs/lsiofs/pipeline/storage/held"
	"github.com/lsiofs/lsiofs/pipeline/storage/joined"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
	"github.com/lsiofs/lsiofs/pipeline/unpack/npy"
)

// scheme is a kind of place that datasets lie at, and the storages that they are
// read through there, from the bottom up:
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
//	s3, web    remote ──► s3                   nothing: remote tries again itself
//	           remote ──► web
//	           remote ──► cubes, or refs and cubes
//
// cached lies over remote, and over local where that is a network's file system and the
// user has asked for it: what is listed, indexed and read goes through it (openCache).
//
// What else differs from one storage to another they say themselves, by optional
// interfaces: storage.Reporter, storage.Uncached, profile.Adjuster.
type scheme struct {
	// name is for reports. text is what stands before "://", "" for plain paths.
	name, text string
	// find finds out what the mount's dataset stands for, and opens what it needs for that.
	// Its close is nil where that is nothing.
	find func(ctx context.Context, m *mount) (found, error)
	// profile says which reads the storage at a root likes, and what was measured of
	// it, if anything was.
	profile func(root string, o *Options) (profile.Profile, []profile.Cell)
	// open opens the storage below a root. What it keeps for itself goes to indexDir,
	// "" where nothing can be stored.
	open func(m *mount, root, indexDir string) (storage.Storage, error)
	// over is what lies over that where records are read, and closes it; its retries
	// are nil where the storage itself tries again.
	over func(storage.Storage) (storage.Storage, *retry.Storage)
}

// schemes are those that are supported.
var schemes = []scheme{
	{name: "local", find: findLocal, profile: findProfile, open: openLocal, over: retry.Over},
	{name: "s3", text: "s3", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "s3", text: "s3+https", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "s3", text: "s3+http", find: findAtService, profile: objectProfile, open: openService, over: asItIs},
	{name: "web", text: "https", find: findAtService, profile: webProfile, open: openService, over: asItIs},
	{name: "web", text: "http", find: findAtService, profile: webProfile, open: openService, over: asItIs},
}

// schemeOf is the scheme of a dataset. What there is in the file system under that
// very name is a path, whatever it looks like.
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

// findLocal finds the directory below which a dataset lies, absolute and without
// symbolic links.
func findLocal(_ context.Context, m *mount) (found, error) {
	t, err := discover.ParseTarget(m.spec.Dataset)
	return found{target: t}, err
}

// openLocal opens the storage of files, or of directories of them.
func openLocal(m *mount, root, indexDir string) (storage.Storage, error) {
	if f, ok := foldered(m.spec.Format); ok {
		s, err := folders.Open(root, indexDir, f.FileFraming())
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
		direct = local.DirectOff // neighbours share bricks, which the page cache keeps
	}
	s, err := local.OpenAmong(root, m.engine, direct, max(m.siblings, 1))
	if err != nil {
		return nil, err
	}
	if len(m.spec.Format.Arrays) > 0 {
		return joined.Over(s, npy.Framing{}), nil
	}
	if m.spec.Format.Name == "zarr" {
		return m.cubesOver(m.referencesOver(s), false), nil
	}
	if m.links != nil {
		return held.Over(s, m.links), nil
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

// foldered is the format that is asked for, where its shards are directories.
func foldered(asked spec.Format) (unpack.Foldered, bool) {
	f, err := formats.New(asked)
	if err != nil {
		return nil, false // it is to be found, or refused, by the catalog
	}
	folders, ok := f.(unpack.Foldered)
	return folders, ok
}

// findProfile looks up which reads the file system of a directory likes. What is
// wrong with a stored profile is no reason not to read.
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
