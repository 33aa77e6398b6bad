package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// list returns the objects that the target may name.
func (f *finder) list(ctx context.Context) ([]storage.Object, error) {
	var objects []storage.Object
	var err error
	switch {
	case len(f.Format.Arrays) > 0:
		return f.listArrays(ctx)
	case f.Target.file != "":
		return f.oneFile(ctx)
	case f.Target.pattern != nil:
		objects, err = f.listPattern(ctx, f.Target.pattern)
	default:
		objects, err = f.listBelow(ctx, func(string, bool) bool { return true })
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", &f.Target, err)
	}
	return objects, nil
}

// listPattern returns the objects that a pattern names.
func (f *finder) listPattern(ctx context.Context, p *pattern) ([]storage.Object, error) {
	// It names what is below the root, never the root itself.
	objects, err := f.listBelow(ctx, func(path string, isDir bool) bool { return path != "." && p.match(path, isDir) })
	if err != nil {
		return nil, err
	}
	objects, notes, err := p.choose(objects, f.leftOut, f.Format.Name != "zarr")
	f.unused = append(f.unused, notes...)
	return objects, err
}

// leftOut is the finder's whyLeftOut. If path has wildcards, any excluded file that it matches
// counts.
func (f *finder) leftOut(path string) (reason string, excluded bool) {
	if f.Target.LeavesOutWithin(path, f.Format.Name) {
		return "--exclude", true
	}
	if hasMeta(path) {
		for left, v := range f.left {
			if doublestar.MatchUnvalidated(path, left) && f.Target.LeavesOutWithin(left, f.Format.Name) {
				return v.Reason, true
			}
		}
	}
	return f.left[path].Reason, false
}

// unusedExcludes returns notes about patterns of --exclude that leave out nothing. It returns none
// for arrays in a store, and if more is left out than storages remember, because then it can't be
// known.
func (f *finder) unusedExcludes() (notes []string) {
	if f.Format.Name == "zarr" || len(f.left) >= storage.MaxOmitted {
		return nil
	}
	for i := range f.Target.excluded {
		e := &f.Target.excluded[i]
		used := false
		for path := range f.left {
			if used = e.matches(path); used {
				break
			}
		}
		if !used {
			notes = append(notes, fmt.Sprintf("--exclude %s leaves out nothing: patterns are relative to the dataset, and each needs its own --exclude", e.text))
		}
	}
	return notes
}

// listBelow lists what match accepts, except the index directory and what is left out by name,
// which it notes.
func (f *finder) listBelow(ctx context.Context, match func(path string, isDir bool) bool) (objects []storage.Object, err error) {
	own := f.indexDir()
	err = f.Storage.List(ctx, func(path string, isDir bool) bool {
		if isDir && path == own {
			return false
		}
		if !match(path, isDir) {
			if isDir && !formats.OfDirectories(f.Format.Name) && match(path, false) {
				f.left[path] = Verdict{Path: path + "/", Reason: "it is a directory: name what is in it, as in DIRECTORY/**"}
			}
			return false
		}
		reason := f.Target.LeavesOut(path, f.Format.Name)
		if reason == "" {
			return true
		}
		shown := path
		if isDir || f.Format.Name == "files" { // for zarr it may be either
			shown += "/"
		}
		if _, known := f.left[path]; !known { // a dangling link is passed as a file, too
			f.left[path] = Verdict{Path: shown, Reason: reason}
		}
		return false
	}, func(o storage.Object) error {
		objects = append(objects, o)
		return nil
	})
	if err != nil {
		return nil, f.withoutExcluded(err)
	}
	for _, o := range storage.OmittedBy(f.Storage) {
		path := strings.TrimSuffix(o.Path, "/")
		if path != own && (own == "" || !strings.HasPrefix(path, own+"/")) && f.mayName(path) {
			f.left[path] = Verdict{Path: o.Path, Reason: o.Reason}
		}
	}
	return objects, nil
}

// withoutExcluded adds what --exclude has left out to the error of a listing of Zarr stores, which
// fails if there are none: perhaps all were excluded. Other errors are returned unchanged.
func (f *finder) withoutExcluded(err error) error {
	if f.Format.Name != "zarr" || errors.Is(err, context.Canceled) {
		return err
	}
	var first Verdict
	for path, v := range f.left {
		if f.Target.excludedBy(path) != nil && (first.Path == "" || v.Path < first.Path) {
			first = v
		}
	}
	if first.Path == "" {
		return err
	}
	return fmt.Errorf("%w; %s is left out (%s)", err, first.Path, first.Reason)
}

// mayName reports whether the target would have named a path that the storage has left out.
func (f *finder) mayName(path string) bool {
	p := f.Target.pattern
	if p == nil {
		return true
	}
	if dir := strings.LastIndexByte(path, '/'); formats.OfDirectories(f.Format.Name) && dir > 0 && p.match(path[:dir], false) {
		return true // a file in a directory that is named
	}
	return p.match(path, false) || p.match(path, true)
}

// oneFile returns the object of a target that is a file.
func (f *finder) oneFile(ctx context.Context) ([]storage.Object, error) {
	if f.Format.Name == "zarr" {
		if c, ok := f.Target.References(); ok {
			return f.listReference(ctx, c.One)
		}
		switch path.Ext(f.Target.file) {
		case ".nc", ".nc4", ".cdf", ".h5", ".hdf5", ".hdf", ".he5":
			return nil, fmt.Errorf("dataset %s is a file of netCDF or HDF5: write references to its chunks, with kerchunk or VirtualiZarr, and name the .json (lsiofs help zarr)", &f.Target)
		}
		return nil, fmt.Errorf("dataset %s is a file: with --format zarr name the directory of an array or a hierarchy, a reference file (.json), a zip file (.zip), or a pattern of these", &f.Target)
	}
	if f.Format.Name == "files" {
		return nil, fmt.Errorf("dataset %s is a file: with --format files name the directory that holds files, or a pattern of directories", &f.Target)
	}
	object, err := storage.StatStable(ctx, f.Storage, f.Target.file)
	if err != nil {
		return nil, cmp.Or(f.refuseStore(ctx, err), fmt.Errorf("dataset %s: %w", &f.Target, err))
	}
	return []storage.Object{object}, nil
}

// indexDir returns the index directory relative to the root if it is below it, where it must not be
// searched for shards; else "".
func (f *finder) indexDir() string {
	if f.IndexDir == "" || f.Target.remote {
		return ""
	}
	dir, err := filepath.EvalSymlinks(f.IndexDir)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(f.Target.root, dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return ""
	}
	return rel
}
