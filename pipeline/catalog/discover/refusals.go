package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// refuseUnsupported is the error for a listing whose files are for the most part of a
// format that is not supported yet, nil where they are not. Files that are shards by
// their extension are no part of it: shards are what was taken for one by its content,
// or for want of others, such as the README or the index that lie beside the data.
func (f *finder) refuseUnsupported(all, shards []candidate) error {
	taken := make(map[string]bool, len(shards))
	var shardBytes int64
	for _, c := range shards {
		if x := f.byExtension(c.inner); x != nil && x.Name() != "lines" {
			return nil
		}
		taken[c.Object.Path] = true
		shardBytes += c.Object.SizeBytes
	}
	type held struct {
		format    spec.Unsupported
		first     string
		count     int
		sizeBytes int64
	}
	byName := map[string]*held{}
	most := &held{}
	for _, c := range all {
		u, is := spec.UnsupportedFile(c.Object.Path)
		if !is || taken[c.Object.Path] {
			continue
		}
		h := byName[u.Name]
		if h == nil {
			h = &held{format: u, first: c.Object.Path}
			byName[u.Name] = h
		}
		h.count++
		h.sizeBytes += c.Object.SizeBytes
		if most.count == 0 || h.sizeBytes > most.sizeBytes {
			most = h
		}
	}
	if most.count == 0 || len(shards) > 0 && most.sizeBytes <= shardBytes {
		return nil
	}
	return fmt.Errorf("%s holds no shards, and %s of %s (%s …), which is not supported yet: %s",
		&f.Target, files(most.count), most.format.Title, most.first, most.format.Convert())
}

// errTwoFormats names a file of each format.
func (f *finder) errTwoFormats(found map[string][]candidate) error {
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	held := make([]string, len(names))
	for i, name := range names {
		held[i] = fmt.Sprintf("%s (%s, %s …)", name, files(len(found[name])), found[name][0].Object.Path)
	}
	return fmt.Errorf("%s holds shards of %d formats: %s: choose one with --format %s, or name the files with a pattern",
		&f.Target, len(names), strings.Join(held, ", "), strings.Join(names, " or --format "))
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

func (f *finder) errNoFiles() error {
	return fmt.Errorf("%s holds no files: check the path", &f.Target)
}

// errNoShards lists the extensions seen and says what to try.
func (f *finder) errNoShards(all []candidate) error {
	if len(all) == 0 {
		return f.errNoFiles()
	}
	count := map[string]int{}
	for _, c := range all {
		count[extension(c.Object.Path)]++
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
	return fmt.Errorf("%s holds no shards; extensions seen: %s: %s", &f.Target, strings.Join(words, ", "), suggestion(seen[0]))
}

// suggestion is the --format to try for files with an extension.
func suggestion(extension string) string {
	e := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(extension, ".gz"), ".zst"), ".lz4")
	switch e {
	case ".json", ".jsonlines", ".jl":
		return "if each line is a JSON object, try --format jsonl"
	case ".csv", ".tsv", ".text", ".md", ".log":
		return "if each line is a record, try --format lines"
	case ".zip":
		return "if it holds a Zarr store, try --format zarr --crop DIM=N,… (lsiofs help zarr); else unpack it"
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
