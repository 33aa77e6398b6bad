package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

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
				f.left[path] = Verdict{Path: path + "/", Reason: "it is a directory: name the files in it, such as DIRECTORY/**"}
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

// refuseTwice refuses two files that are the same shard.
func (f *finder) refuseTwice(shards []Shard) error {
	parts := f.Storage.Caps().Parts
	ofParts := parts != nil
	if formats.OfDirectories(f.Format.Name) && !ofParts { // their storage has compared them
		return nil
	}
	root := f.Target.root
	if f.Target.remote || len(f.Format.Arrays) > 0 {
		root = ""
	}
	once := NewOnce(root)
	once.parts = parts
	for _, s := range shards {
		before := once.Twin(s.Object)
		switch {
		case before == "":
			once.Add(s.Object)
			continue
		case ofParts:
			return fmt.Errorf("%s holds the same arrays under two names: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
		case otherCodec(before, s.Object.Path):
			return fmt.Errorf("%s holds one shard in two codecs: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
		}
		return fmt.Errorf("%s holds one file under two names: %s and %s%s", &f.Target, before, s.Object.Path, oneOfThem)
	}
	return nil
}

const oneOfThem = ": remove one of them, or leave it out with --exclude or a pattern"

// Once finds files that are the same shard: one file under two names, or a file in two codecs, such
// as zstd -d and gunzip -k leave. It is not safe for concurrent use.
type Once struct {
	root string
	// parts returns the paths of the files of which a shard consists; nil if shards are files.
	parts func(path string) []string
	plain map[string]string   // paths, by the name without a codec
	files map[sameness]string // likewise
}

// NewOnce returns an empty Once. root is the directory to which paths are relative; "" if files can
// only be compared by name.
func NewOnce(root string) *Once {
	return &Once{root: root, plain: map[string]string{}, files: map[sameness]string{}}
}

// Twin returns the path of an added shard that is o under another name or in another codec, "" if
// there is none.
func (x *Once) Twin(o storage.Object) string {
	if path := x.plain[formats.ParseName(o.Path).Plain]; x.parts == nil && path != "" && path != o.Path {
		return path
	}
	if path := x.files[x.samenessOf(o)]; x.root != "" && path != "" && path != o.Path && x.same(path, o.Path) {
		return path
	}
	return ""
}

// same reports whether the shards of two paths consist of the same files.
func (x *Once) same(a, b string) bool {
	if x.parts == nil {
		return sameFile(x.root, a, b)
	}
	return slices.EqualFunc(x.parts(a), x.parts(b), func(a, b string) bool { return sameFile(x.root, a, b) })
}

// samenessOf returns what o has in common with its twins. A shard made of parts is compared by the
// parts' inodes, because its version depends on their paths.
func (x *Once) samenessOf(o storage.Object) (s sameness) {
	if x.parts == nil {
		return samenessOf(o)
	}
	if x.root == "" {
		return s
	}
	for _, part := range x.parts(o.Path) {
		if info, _, err := lookAt(x.root, part); err == nil {
			s.inode = s.inode*31 + info.Sys().(*syscall.Stat_t).Ino
		}
	}
	return s
}

// Add adds a shard that has no twin.
func (x *Once) Add(o storage.Object) {
	x.plain[formats.ParseName(o.Path).Plain] = o.Path
	if x.root != "" {
		x.files[x.samenessOf(o)] = o.Path
	}
}

// Remove removes a shard that was added.
func (x *Once) Remove(o storage.Object) {
	if plain := formats.ParseName(o.Path).Plain; x.plain[plain] == o.Path {
		delete(x.plain, plain)
	}
	if key := x.samenessOf(o); x.files[key] == o.Path {
		delete(x.files, key)
	}
}

// Still reports whether two paths that were twins still are: both exist, and differ only in the
// codec or are of one file.
func (x *Once) Still(a, b string) bool {
	if !otherCodec(a, b) {
		return sameFile(x.root, a, b)
	}
	_, err := os.Stat(filepath.Join(x.root, a))
	return err == nil
}

// TwiceReason returns why a shard does not count because of its twin.
func TwiceReason(path, twin string) string {
	if otherCodec(path, twin) {
		return "it is " + twin + " in a different codec" + oneOfThem
	}
	return "it is " + twin + " under another name" + oneOfThem
}

// otherCodec reports whether two names differ only in the codec.
func otherCodec(a, b string) bool { return formats.ParseName(a).Plain == formats.ParseName(b).Plain }

// sameness is what two names of one file have in common. Other files may have it, too.
type sameness struct {
	sizeBytes int64
	modTime   int64
	inode     uint64
}

func samenessOf(o storage.Object) sameness {
	return sameness{o.SizeBytes, o.Version.ModTimeNanos, o.Version.Inode}
}

// sameFile reports whether two paths below root are the same file or directory (device and inode),
// or the same member of one file.
func sameFile(root, a, b string) bool {
	x, inX, err := lookAt(root, a)
	if err != nil {
		return false
	}
	y, inY, err := lookAt(root, b)
	return err == nil && inX == inY && os.SameFile(x, y)
}

// lookAt returns the file info of a path below root. If the path continues inside a file, such as
// that of a zip file's member, it returns the info of the file, and the rest of the path.
func lookAt(root, path string) (info os.FileInfo, rest string, err error) {
	at := filepath.Join(root, path)
	whole := at
	for info, err = os.Stat(at); errors.Is(err, syscall.ENOTDIR); info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	return info, whole[len(at):], err
}

// sameFiles returns alike without the namings whose files are the shards under other names, such as
// the blobs of a hub's cache: names imply which of the two are the shards.
func (f *finder) sameFiles(files []file, d decision, alike []naming) []naming {
	if len(alike) == 0 || f.Target.remote {
		return alike
	}
	shards := map[sameness]string{}
	for i := range files {
		if d.taken[i] {
			shards[samenessOf(files[i].Object)] = files[i].Object.Path
		}
	}
	var others []naming
	for _, n := range alike {
		same := true
		for _, i := range n.files {
			o := files[i].Object
			shard, maybe := shards[samenessOf(o)]
			if same = same && maybe && sameFile(f.Target.root, shard, o.Path); !same {
				break
			}
		}
		if !same {
			others = append(others, n)
			continue
		}
		for _, i := range n.files {
			d.reasons[i] = otherName
		}
	}
	return others
}
