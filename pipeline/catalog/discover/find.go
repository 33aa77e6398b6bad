package discover

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config describes what to find, and where.
type Config struct {
	Target Target
	// Format is the requested format; its name may be auto.
	Format spec.Format
	// Storage lists the files below the target's root. For several arrays it must be a
	// storage.Caps.Join.
	Storage storage.Storage
	// Reads is the storage from which contents are read: Storage, or a wrapper of it.
	Reads storage.Storage
	// AssumeAlike makes Shards open only two of the files that two formats claim by their names. If
	// both are what their names imply, the others are assumed to be, too (Shard.Assumed).
	AssumeAlike bool
	// AtATime is how many files are opened concurrently to find out their format; 0 means two per
	// core.
	AtATime int
	// IndexDir is not searched for shards if it is below the root; "" for none.
	IndexDir string
	// Known returns an earlier run's answer for an unchanged file: the name of its format, "" for
	// none. It is nil if there was no earlier run.
	Known func(storage.Object) (format string, known bool)
	// Files makes Found.Selection list all files, not only the first ones.
	Files bool
	Log   *slog.Logger
}

// Shard is one file of a dataset.
type Shard struct {
	Object storage.Object
	// Codec is the codec implied by the name, or chosen by the format; nil for none. The actual
	// codec is determined by the shard's first bytes: formats.CodecOf.
	Codec format.Codec
	// Assumed means that two formats claim the file by its name, and that it was not opened. Its
	// reader must call IsAnothers, and if that returns true, find the shards again without
	// Config.AssumeAlike.
	Assumed bool
}

// Found is the result of Shards.
type Found struct {
	Format   spec.Format // with its name, and its defaults
	Unpacker format.Format
	// StreamExtension is the extension of streams of these shards, with the dot.
	StreamExtension string
	Shards          []Shard // in dataset order, at least one
	// Judged are files that were looked at, now or in an earlier run, and are not shards.
	Judged []storage.Object
	// Selection is a readable summary of what was taken, and what was left out.
	Selection Selection
}

// Shards finds the shards of a target (pipeline/format/SHARDS.md). If there are none, or they are of
// several formats, the error contains the next step.
func Shards(ctx context.Context, c Config) (Found, error) {
	c.Format = c.Format.WithDefaults()
	f := finder{Config: c, left: map[string]Verdict{}}
	if err := refuseMount(&f.Target, f.Format.Name); err != nil {
		return Found{}, err
	}
	objects, err := f.list(ctx)
	if err != nil {
		return Found{}, err
	}
	f.unused = append(f.unused, f.unusedExcludes()...)
	files := asFiles(objects)
	d, err := f.found(ctx, files)
	if err != nil && f.assumed && ctx.Err() == nil {
		// The error's text counts the files of each format, so all must be known.
		f.AssumeAlike = false
		d, err = f.found(ctx, asFiles(objects))
	}
	if err != nil {
		return Found{}, err
	}
	return d, f.refuseTwice(d.Shards)
}

// finder is one run of Shards.
type finder struct {
	Config
	assumed bool               // some files were assumed to be what their names imply
	left    map[string]Verdict // by the listing, by path
	notes   []string           // for the user, about what was found
	unused  []string           // likewise: what was named but does not exist
	// onUnreadable, if set, is called for files that can't be read to find out their format.
	onUnreadable func(o storage.Object, err error)
}

func (f *finder) found(ctx context.Context, files []file) (Found, error) {
	f.notes = nil
	if f.Format.Name != "auto" {
		return f.asked(files)
	}
	return f.auto(ctx, files)
}

// asked finds the shards of the requested format.
func (f *finder) asked(files []file) (Found, error) {
	unpacker, err := formats.New(f.Format)
	if err != nil {
		return Found{}, fmt.Errorf("format %s: %w", f.Format.Name, err)
	}
	if len(files) == 0 {
		return Found{}, f.errNoFiles()
	}
	var d decision
	if formats.OfDirectories(f.Format.Name) || len(f.Format.Arrays) > 0 || f.Target.file != "" {
		d = all(unpacker.Name(), files)
	} else {
		var counts map[string]int
		if d, counts = decideAsked(unpacker, files); len(counts) > 1 {
			return Found{}, f.errExtensions(counts)
		}
	}
	return f.result(f.Format, unpacker, files, d), nil
}

// all takes all files.
func all(format string, files []file) decision {
	d := decision{format: format, named: true, taken: make([]bool, len(files)), reasons: make([]string, len(files))}
	for i := range files {
		d.taken[i], d.reasons[i] = true, byAsking
	}
	return d
}

// auto finds the shards and their format.
func (f *finder) auto(ctx context.Context, files []file) (Found, error) {
	if err := f.refuseZarr(ctx, files, false); err != nil {
		return Found{}, err
	}
	namings := namingsOf(files)
	shown := make([]string, len(files))
	looks := wanted(files, namings, shown)
	if f.AssumeAlike {
		if err := f.assume(ctx, files, looks); err != nil {
			return Found{}, err
		}
	}
	if err := f.look(ctx, files, looks, shown); err != nil {
		return Found{}, err
	}
	if more := without(wanted(files, namings, shown), looks); len(more) > 0 { // the tars contain games
		if err := f.look(ctx, files, more, shown); err != nil {
			return Found{}, err
		}
		looks = append(looks, more...)
	}
	d, of, alike := decide(files, namings, shown)
	alike = f.sameFiles(files, d, alike)
	switch {
	case len(of) > 1:
		return Found{}, f.errTwoFormats(files, of)
	case len(alike) > 0:
		return Found{}, f.errAlike(files, d.format, of[d.format], alike[0])
	}
	if err := f.refuseLeftOut(files, d); err != nil {
		return Found{}, err
	}
	if len(of) == 0 {
		if err := f.refuseZarr(ctx, files, true); err != nil {
			return Found{}, err
		}
		return Found{}, f.errNoShards(files)
	}
	format := f.Format
	format.Name = d.format
	if format.Lc0Check && format.Name != "lc0" {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --lc0-check is for format lc0 only", &f.Target, format.Name)
	}
	if format.As != "" && format.Name != "lc0" {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --as %s is for format lc0 only", &f.Target, format.Name, format.As)
	}
	unpacker, err := formats.New(format)
	if err != nil {
		return Found{}, err
	}
	found := f.result(format, unpacker, files, d)
	for _, i := range looks {
		if !d.taken[i] {
			found.Judged = append(found.Judged, files[i].Object)
		}
	}
	return found, nil
}

// result returns the Found for a decision.
func (f *finder) result(formatName spec.Format, unpacker format.Format, files []file, d decision) Found {
	r := Found{Format: formatName, Unpacker: unpacker}
	own, owns := unpacker.(format.OwnCodecs)
	taken := 0
	for i := range files {
		if d.taken[i] {
			taken++
		}
	}
	r.Shards = make([]Shard, 0, taken)
	for i := range files {
		if !d.taken[i] {
			continue
		}
		s := files[i].Shard
		switch {
		case formats.OfDirectories(formatName.Name): // whatever their names end in
			s.Codec = nil
		case owns:
			s.Codec = own.Codec(s.Object.Path, s.Codec)
		}
		if len(r.Shards) == 0 {
			stem := files[i].name.Stem
			if formats.OfDirectories(formatName.Name) {
				stem = s.Object.Path
			}
			r.StreamExtension = unpacker.StreamExtension(stem)
		}
		r.Shards = append(r.Shards, s)
	}
	r.Selection = f.selection(files, d)
	return r
}
