package discover

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// Config says what is looked for, and where.
type Config struct {
	Target Target
	// Format is what was asked for; its name may be auto.
	Format spec.Format
	// Storage lists the files below the target's root. Of several arrays it is a
	// storage.Joiner.
	Storage storage.Storage
	// Reads is the storage that contents are read from: Storage, or one around it.
	Reads storage.Storage
	// AssumeAlike has two of the files that two formats claim by their names opened. If
	// both are what their names say, the others are taken for the same unopened
	// (Shard.Assumed).
	AssumeAlike bool
	// AtATime is how many files are opened at a time to see what they are; 0 means two
	// a core.
	AtATime int
	// IndexDir holds no shards where it lies below the root; "" for none.
	IndexDir string
	// Known gives the answer of an earlier run for a file that is the same: the
	// name of its format, "" for none. nil where there was no run.
	Known func(storage.Object) (format string, known bool)
	Log   *slog.Logger
}

// Shard is one file of a dataset.
type Shard struct {
	Object storage.Object
	Codec  unpack.Codec // nil where it is not compressed
	// Assumed says that two formats claim the file by its name, and that nobody has looked
	// into it. Its reader asks IsAnothers, and if it is, finds the shards again without
	// Config.AssumeAlike.
	Assumed bool
}

// Found is what a target holds.
type Found struct {
	Format   spec.Format // with its name, and its defaults
	Unpacker unpack.Format
	// StreamExtension is the ending of streams of such shards, with the dot.
	StreamExtension string
	Shards          []Shard // in dataset order, at least one
	// Judged are files that were opened to see what they are, or were so by an
	// earlier run, and are no shards.
	Judged []storage.Object
	// PassedOver counts the files that are no shards.
	PassedOver int
}

// Shards finds the shards of a target (RECORDS.md, "Which files are shards"). Where
// there are none, or of several formats, the error says what to do.
//
// Only files whose names say nothing are opened, and those that two formats claim by
// their names, and only where the format is auto.
func Shards(ctx context.Context, c Config) (Found, error) {
	c.Format = c.Format.WithDefaults()
	f := finder{Config: c, formats: formats.All()}
	objects, err := f.list(ctx)
	if err != nil {
		return Found{}, err
	}
	slices.SortFunc(objects, func(a, b storage.Object) int { return strings.Compare(a.Path, b.Path) })
	files := make([]candidate, len(objects))
	for i, o := range objects {
		inner, codec := formats.Split(o.Path)
		if ofDirectories(c.Format.Name) { // whatever their names end in
			inner, codec = o.Path, nil
		}
		files[i] = candidate{Shard: Shard{Object: o, Codec: codec}, inner: inner}
	}
	if c.Format.Name != "auto" {
		return f.asked(files)
	}
	d, err := f.auto(ctx, files)
	if err != nil && f.assumed && ctx.Err() == nil {
		// The error's words count the files of each format, so all have to be known.
		f.AssumeAlike = false
		return f.auto(ctx, files)
	}
	return d, err
}

// finder is one run of Shards.
type finder struct {
	Config
	formats []unpack.Format // in the order in which they judge contents
	assumed bool            // some files were assumed to be what their names say
	// onUnreadable, when set, is told of files that can't be read to see what they are.
	onUnreadable func(o storage.Object, err error)
}

// candidate is a file of the listing.
type candidate struct {
	Shard
	inner   string // path without the codec's ending
	settled bool   // its name decides
}

// takesAll says whether a format takes all files when it is asked for.
func takesAll(name string) bool { return name == "fixed" || name == "lines" || ofDirectories(name) }

// ofDirectories says whether a format's shards are directories.
func ofDirectories(name string) bool { return name == "files" || name == "zarr" }

// asked finds the shards of the format that was asked for.
func (f *finder) asked(files []candidate) (Found, error) {
	unpacker, err := formats.New(f.Format)
	if err != nil {
		return Found{}, fmt.Errorf("format %s: %w", f.Format.Name, err)
	}
	if len(files) == 0 {
		return Found{}, f.errNoFiles()
	}
	if takesAll(f.Format.Name) || len(f.Format.Arrays) > 0 {
		return found(f.Format, unpacker, files, files), nil
	}
	var with []candidate
	for _, c := range files {
		if takes(unpacker, c) {
			with = append(with, c)
		}
	}
	if len(with) == 0 {
		with = files
	}
	return found(f.Format, unpacker, with, files), nil
}

// found is what there is where some of these files are the shards.
func found(format spec.Format, unpacker unpack.Format, shards, files []candidate) Found {
	choose(unpacker, shards)
	d := Found{
		Format: format, Unpacker: unpacker, StreamExtension: unpacker.StreamExtension(shards[0].inner),
		Shards: make([]Shard, len(shards)), PassedOver: len(files) - len(shards),
	}
	for i := range shards {
		d.Shards[i] = shards[i].Shard
	}
	return d
}

// auto finds the format, too.
func (f *finder) auto(ctx context.Context, files []candidate) (Found, error) {
	if err := f.refuseZarr(ctx, files, false); err != nil {
		return Found{}, err
	}
	of, judged, err := f.sort(ctx, files)
	if err != nil {
		return Found{}, err
	}
	if len(of) > 1 {
		return Found{}, f.errTwoFormats(of)
	}
	format := f.Format
	var shards []candidate
	for name, list := range of {
		format.Name, shards = name, list
	}
	if err := f.refuseUnsupported(files, shards); err != nil {
		return Found{}, err
	}
	if len(shards) == 0 {
		if err := f.refuseZarr(ctx, files, true); err != nil {
			return Found{}, err
		}
		return Found{}, f.errNoShards(files)
	}
	slices.SortFunc(shards, func(a, b candidate) int { return strings.Compare(a.Object.Path, b.Object.Path) })
	if format.Lc0Check && format.Name != "lc0" {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --lc0-check is for lc0's only", &f.Target, format.Name)
	}
	if format.As != "" && format.Name != "lc0" {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --as %s is for lc0's only", &f.Target, format.Name, format.As)
	}
	unpacker, err := formats.New(format)
	if err != nil {
		return Found{}, err
	}
	d := found(format, unpacker, shards, files)
	d.Judged = judged
	return d, nil
}

// sort sorts files by their format's name. Text counts where there is nothing else.
// judged are those that were looked into and are of none.
func (f *finder) sort(ctx context.Context, files []candidate) (of map[string][]candidate, judged []storage.Object, err error) {
	of = map[string][]candidate{}
	var text, unknown []candidate
	for _, c := range files {
		x := f.byExtension(c.inner)
		switch {
		case c.Object.SizeBytes > 0 && (x == nil || f.contested(x, c)):
			unknown = append(unknown, c)
		case x == nil:
		case x.Name() == "lines":
			text = append(text, c)
		default:
			of[x.Name()] = append(of[x.Name()], c)
		}
	}
	if f.AssumeAlike {
		if err := f.assume(ctx, unknown); err != nil {
			return nil, nil, err
		}
	}
	byContent, err := f.judge(ctx, unknown)
	if err != nil {
		return nil, nil, err
	}
	for i, x := range byContent {
		if x == nil {
			x = f.byExtension(unknown[i].inner)
		}
		if x == nil {
			judged = append(judged, unknown[i].Object)
			continue
		}
		of[x.Name()] = append(of[x.Name()], unknown[i])
	}
	if len(of) == 0 && len(text) > 0 {
		of["lines"] = text
	}
	return of, judged, nil
}
