package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// candidate is a file of the listing.
type candidate struct {
	object storage.Object
	codec  uint32 // number in the table
	inner  string // path without the codec's ending
}

// discovered is what a listing holds.
type discovered struct {
	format     spec.Format
	unpacker   unpack.Format
	shards     []candidate // in dataset order
	passedOver int
	judged     []judged // opened, and no shards
}

// judge tells a file's format by its content, nil when it is none's.
type judge func(ctx context.Context, files []candidate) ([]unpack.Format, error)

// discover applies RECORDS.md, "Which files are shards", to a listing. where
// names the dataset in messages. Only files whose endings say nothing are
// given to byContent, and those that two formats may have, and only under auto.
func discover(ctx context.Context, where string, objects []storage.Object, asked spec.Format, t *table, byContent judge) (discovered, error) {
	slices.SortFunc(objects, func(a, b storage.Object) int { return strings.Compare(a.Path, b.Path) })
	files := make([]candidate, len(objects))
	for i, o := range objects {
		codec, inner := t.codec(o.Path)
		if asked.Name == "files" { // its shards are directories, whatever their names end in
			codec, inner = 0, o.Path
		}
		files[i] = candidate{object: o, codec: codec, inner: inner}
	}
	if asked.Name != "auto" || len(asked.Arrays) > 0 {
		asked = filledIn(asked)
		return discoverAsked(where, files, asked, t)
	}
	return discoverAuto(ctx, where, files, asked, t, byContent)
}

// takesAll says whether a format takes all files when it is asked for.
func takesAll(name string) bool { return name == "fixed" || name == "lines" || name == "files" }

func discoverAsked(where string, files []candidate, asked spec.Format, t *table) (discovered, error) {
	f, err := t.make(asked)
	if err != nil {
		return discovered{}, fmt.Errorf("format %s: %w", asked.Name, err)
	}
	if len(files) == 0 {
		return discovered{}, fmt.Errorf("%s holds no files: check the path", where)
	}
	d := discovered{format: filledIn(asked), unpacker: f, shards: files}
	if takesAll(asked.Name) || len(asked.Arrays) > 0 {
		return d, nil
	}
	var with []candidate
	for _, c := range files {
		if takes(f, c) {
			with = append(with, c)
		}
	}
	if len(with) > 0 {
		d.shards, d.passedOver = with, len(files)-len(with)
	}
	t.chosen(f, d.shards)
	return d, nil
}

// filledIn is a format with its defaults in place.
func filledIn(f spec.Format) spec.Format {
	if f.Name == "fixed" && f.StrideBytes == 0 {
		f.StrideBytes = f.RecordBytes
	}
	if len(f.Arrays) > 0 {
		f.Name = "npy"
	}
	if f.Remainder == "" {
		f.Remainder = spec.RemainderCorrupt
	}
	return f
}

func discoverAuto(ctx context.Context, where string, files []candidate, asked spec.Format, t *table, byContent judge) (discovered, error) {
	var d discovered
	found := map[string][]candidate{} // by format; text files, the last resort, apart
	var text, unknown []candidate
	for _, c := range files {
		f := t.byExtension(c.inner)
		switch {
		case c.object.SizeBytes > 0 && (f == nil || t.contested(f, c)):
			unknown = append(unknown, c)
		case f == nil:
		case f.Name() == "lines":
			text = append(text, c)
		default:
			found[f.Name()] = append(found[f.Name()], c)
		}
	}
	formats, err := byContent(ctx, unknown)
	if err != nil {
		return d, err
	}
	for i, f := range formats {
		if f == nil {
			f = t.byExtension(unknown[i].inner)
		}
		if f == nil {
			d.judged = append(d.judged, judgedOf(unknown[i].object))
			continue
		}
		found[f.Name()] = append(found[f.Name()], unknown[i])
	}
	if len(found) == 0 && len(text) > 0 {
		found["lines"] = text
	}
	if len(found) > 1 {
		return d, errTwoFormats(where, found)
	}
	for name, shards := range found {
		asked.Name = name
		d.shards = shards
	}
	if err := t.errUnsupported(where, files, d.shards); err != nil {
		return d, err
	}
	if len(d.shards) == 0 {
		return d, errNoShards(where, files, t)
	}
	slices.SortFunc(d.shards, func(a, b candidate) int { return strings.Compare(a.object.Path, b.object.Path) })
	d.passedOver = len(files) - len(d.shards)
	d.format = filledIn(asked)
	if d.format.Lc0Check && d.format.Name != "lc0" {
		return d, fmt.Errorf("%s holds shards of format %s: --lc0-check is for lc0's only", where, d.format.Name)
	}
	if d.unpacker, err = t.make(d.format); err == nil {
		t.chosen(d.unpacker, d.shards)
	}
	return d, err
}

func errTwoFormats(where string, found map[string][]candidate) error {
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	held := make([]string, len(names))
	for i, name := range names {
		held[i] = fmt.Sprintf("%s (%s, %s …)", name, files(len(found[name])), found[name][0].object.Path)
	}
	return fmt.Errorf("%s holds shards of %d formats: %s: choose one with --format %s, or name the files with a pattern",
		where, len(names), strings.Join(held, ", "), strings.Join(names, " or --format "))
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// errNoShards lists the extensions seen and says what to try.
func errNoShards(where string, all []candidate, t *table) error {
	if len(all) == 0 {
		return fmt.Errorf("%s holds no files: check the path", where)
	}
	count := map[string]int{}
	for _, c := range all {
		count[t.extension(c.object.Path)]++
	}
	seen := make([]string, 0, len(count))
	for e := range count {
		seen = append(seen, e)
	}
	slices.SortFunc(seen, func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	const most = 8
	words := make([]string, 0, most+1)
	for i, e := range seen {
		if i == most {
			words = append(words, fmt.Sprintf("%d more", len(seen)-most))
			break
		}
		name := e
		if e == "" {
			name = "no extension"
		}
		words = append(words, fmt.Sprintf("%s (%d)", name, count[e]))
	}
	return fmt.Errorf("%s holds no shards; extensions seen: %s: %s", where, strings.Join(words, ", "), suggestion(seen[0]))
}

// suggestion is the --format to try for files with an extension.
func suggestion(extension string) string {
	e := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(extension, ".gz"), ".zst"), ".lz4")
	switch e {
	case ".json", ".jsonlines", ".jl":
		return "if each line is a JSON object, try --format jsonl"
	case ".csv", ".tsv", ".text", ".md", ".log":
		return "if each line is a record, try --format lines"
	case ".npz":
		return "npz files hold several arrays: save each as an .npy of its own"
	case ".bin", ".dat", ".raw", ".tokens":
		return "if records have one size, try --format fixed --record-bytes N"
	case ".jpg", ".jpeg", ".JPG", ".JPEG", ".png", ".PNG", ".webp", ".wav", ".flac", ".mp3", ".mp4":
		return "if each file is a sample, or those with one name up to the dot are, try --format files"
	}
	if extension == ".gz" {
		return "if they are games of Leela Chess Zero, try --format lc0"
	}
	return "try --format tar, jsonl, tfrecord, npy, lines, lc0, files, or fixed with --record-bytes N"
}
