package listing

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs"
)

// Unused is a file, directory or hierarchy that gives no crop.
type Unused struct {
	Path, Why string
	// Plain means that it is a file without the name of a store: many directories have such files.
	Plain bool
}

// beside notes a file that is not in a hierarchy.
func (f *finder) beside(at string) {
	list := &f.files
	if strings.HasSuffix(at, ".zarr") || refs.Is(at) && !isReference(at) {
		list = &f.stores
	}
	if len(*list) < storage.MaxOmitted {
		*list = append(*list, at)
	}
}

// isReference reports whether a file may hold references, by its name. Many that hold none match
// too.
func isReference(at string) bool { return refs.Is(at) && endingOf(at) == ".json" }

// endingOf returns the extension of a path in lower case, with its dot.
func endingOf(at string) string { return strings.ToLower(path.Ext(at)) }

// nothingIn reports directories that neither are hierarchies nor hold any, and files outside
// hierarchies. Files in a reported directory are not reported. A directory that holds a file named
// like a store is not reported: that file is.
func (f *finder) nothingIn(none []string, list []*node) {
	holds := map[string]bool{}
	hold := func(at string) {
		for at != "" {
			at = parent(at)
			holds[at] = true
		}
	}
	for _, n := range list {
		hold(n.path)
	}
	slices.Sort(f.stores)
	slices.Sort(f.files)
	for _, at := range f.stores {
		hold(at)
		f.LeftOut(Unused{Path: at, Why: whyStore(at)})
	}
	slices.Sort(none) // directories sort before their contents
	left := map[string]bool{}
	for _, at := range none {
		if holds[at] || within(left, at) {
			continue
		}
		left[at] = true
		f.LeftOut(Unused{Path: at, Why: "neither it nor what is in it has a zarr.json, .zgroup or .zarray: files whose names begin with a dot may not have been copied"})
	}
	for _, at := range f.files {
		if !within(left, at) {
			f.LeftOut(Unused{Path: at, Why: whyFile(at), Plain: true})
		}
	}
}

// whyStore returns why a file named like a store is left out.
func whyStore(at string) string {
	if strings.HasSuffix(at, ".zarr") {
		return "it is a file, not a directory"
	}
	return "it is a zip file, and these are read alone, or by a pattern of their own, such as *" + endingOf(at)
}

// whyFile returns why any other file is left out.
func whyFile(at string) string {
	if isReference(at) {
		return "it is a file; files of references are read alone, or by a pattern of their own, such as *" + endingOf(at)
	}
	return "it is a file, not a directory"
}

// noHierarchy returns the error for a dataset without hierarchies.
func (f *finder) noHierarchy() error {
	const none = "there is no Zarr store: no directory has a zarr.json, .zgroup or .zarray"
	for _, at := range slices.Concat(f.stores, f.files) {
		if refs.Is(at) {
			what := "a zip file"
			if isReference(at) {
				what = "perhaps a file of references"
			}
			return fmt.Errorf("%s; there is %s, %s: name it, or several such files by a pattern, such as *%s", none, at, what, endingOf(at))
		}
	}
	return errors.New(none + "; name the directory of an array, or one that holds some")
}
