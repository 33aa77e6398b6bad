package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// refuseLeftOut refuses shards found by their content if other files hold more bytes: the former
// may be the README or the index of another dataset. If names imply the shards' format, that is
// only noted. If there are no shards, it returns the error for files of a format that is not
// supported yet.
func (f *finder) refuseLeftOut(all []file, d decision) error {
	var shard *file
	var shards, others int64
	byNaming := namingsOf(all)
	var most *naming
	for n := range byNaming {
		first := byNaming[n].files[0]
		switch {
		case d.taken[first]:
			if shards += byNaming[n].sizeBytes; shard == nil {
				shard = &all[first]
			}
		case d.reasons[first] != otherName:
			if others += byNaming[n].sizeBytes; most == nil || byNaming[n].sizeBytes > most.sizeBytes {
				most = &byNaming[n]
			}
		}
	}
	if shard == nil || others > shards && (!d.named || d.format == textFormat) {
		if err := f.refuseUnsupported(all, d, shards); err != nil {
			return err
		}
	}
	if shard == nil || others <= shards {
		return nil
	}
	if d.named {
		f.notes = append(f.notes, fmt.Sprintf("what is left out holds more bytes than the shards: %s against %s, such as %s",
			humanize.IBytes(uint64(others)), humanize.IBytes(uint64(shards)), all[most.files[0]].Object.Path))
		return nil
	}
	return fmt.Errorf("%s holds shards of format %s by their content, such as %s, and more bytes in other files (%s), which the former may only describe: name the shards with a pattern, leave out what is not one with --exclude, or choose the --format",
		&f.Target, d.format, shard.Object.Path, most.text(all))
}

// refuseUnsupported returns the error for files that are mostly of a format that is not supported
// yet, nil if they are not.
func (f *finder) refuseUnsupported(all []file, d decision, shardBytes int64) error {
	type held struct {
		format    spec.Unsupported
		first     string
		count     int
		sizeBytes int64
	}
	byName := map[string]*held{}
	most := &held{}
	for i, c := range all {
		u, is := spec.UnsupportedFile(c.Object.Path)
		if !is || d.taken[i] {
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
	if most.count == 0 || most.sizeBytes <= shardBytes {
		return nil
	}
	return fmt.Errorf("%s holds no shards, but %s of %s (%s), which lsiofs does not read yet: %s",
		&f.Target, files(most.count), most.format.Title, example(most.count, most.first), most.format.Convert())
}

// errTwoFormats counts the files of each format, with an example.
func (f *finder) errTwoFormats(all []file, of map[string][]naming) error {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	held := make([]string, len(names))
	for i, name := range names {
		n := 0
		for _, g := range of[name] {
			n += len(g.files)
		}
		held[i] = fmt.Sprintf("%s (%s, %s)", name, files(n), example(n, all[of[name][0].files[0]].Object.Path))
	}
	return fmt.Errorf("%s holds shards of %d formats: %s: choose one with --format %s, name the files with a pattern, or leave some out with --exclude",
		&f.Target, len(names), strings.Join(held, ", "), strings.Join(names, " or --format "))
}

// errAlike counts two namings of one format, only one of which implies it.
func (f *finder) errAlike(all []file, format string, shards []naming, other naming) error {
	return fmt.Errorf("%s holds shards of format %s by their names (%s), and others by their content alone (%s): choose with a pattern, or leave some out with --exclude",
		&f.Target, format, shards[0].text(all), other.text(all))
}

// errExtensions counts the extensions of files if none has the name of a shard of the requested
// format.
func (f *finder) errExtensions(counts map[string]int) error {
	seen, _ := countsText(counts)
	return fmt.Errorf("%s holds files with %d extensions, none of which belongs to format %s: %s: name the shards with a pattern, as in '%s', or leave the others out with --exclude",
		&f.Target, len(counts), f.Format.Name, seen, f.patternFor(counts))
}

// patternFor returns a pattern for the most frequent extension.
func (f *finder) patternFor(counts map[string]int) string {
	_, order := countsText(counts)
	for _, e := range order {
		if e != "" && e != ".#" {
			return strings.TrimSuffix(f.Target.root, "/") + "/*" + e
		}
	}
	return strings.TrimSuffix(f.Target.root, "/") + "/*"
}

// countsText lists extensions with their counts, the most frequent first.
func countsText(count map[string]int) (text string, seen []string) {
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
		if e == "" {
			e = "no extension"
		}
		words = append(words, fmt.Sprintf("%s (%d)", e, count[seen[i]]))
	}
	return strings.Join(words, ", "), seen
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// example returns the first of n names, introduced as an example if there are more.
func example(n int, first string) string {
	if n == 1 {
		return first
	}
	return "such as " + first
}

func (f *finder) errNoFiles() error {
	var first Verdict
	for path, v := range f.left {
		if first.Path == "" || path < strings.TrimSuffix(first.Path, "/") {
			first = v
		}
	}
	if first.Path != "" {
		holds := "holds"
		if f.Target.pattern != nil {
			holds = "matches"
		}
		return fmt.Errorf("%s %s no files except those that are left out, such as %s (%s): check the path, and --exclude", &f.Target, holds, first.Path, first.Reason)
	}
	if f.Target.pattern != nil {
		return fmt.Errorf("no file matches %s: check the path and the pattern", &f.Target)
	}
	return fmt.Errorf("%s holds no files: check the path", &f.Target)
}

// errNoShards lists the extensions seen and the next step.
func (f *finder) errNoShards(all []file) error {
	if len(all) == 0 {
		return f.errNoFiles()
	}
	count := map[string]int{}
	for i := range all {
		count[shownExtension(all[i].Object.Path)]++
	}
	text, seen := countsText(count)
	next := suggestion(seen[0])
	if len(seen) > 1 && strings.Contains(next, "--format") { // --format takes files of one extension
		next += fmt.Sprintf(", and name the files with a pattern, such as '%s'", f.patternFor(count))
	}
	return fmt.Errorf("%s holds no shards; extensions seen: %s: %s", &f.Target, text, next)
}

// shownExtension returns the extension of a name for messages: including that of the codec.
func shownExtension(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	dot := strings.LastIndexByte(base, '.')
	if dot < 0 {
		return ""
	}
	last := strings.ToLower(base[dot:])
	_, codec := formats.Split(base)
	if codec == nil && foreignCodecs[last] == "" {
		return formats.Extension(base)
	}
	if before := strings.LastIndexByte(base[:dot], '.'); before >= 0 && formats.Extension(base[:dot]) != ".#" {
		return strings.ToLower(base[before:])
	}
	return last
}

// foreignCodecs are extensions of compressed files that lsiofs does not read, and the programs that
// decompress them.
var foreignCodecs = map[string]string{".xz": "xz -dc", ".bz2": "bzip2 -dc", ".lzma": "xz -dc", ".br": "brotli -dc", ".sz": "snzip -dc", ".snappy": "snzip -dc"}

// suggestion returns what to try for files with an extension.
func suggestion(extension string) string {
	last := extension[strings.LastIndexByte(extension, '.')+1:]
	if program := foreignCodecs["."+last]; program != "" {
		return fmt.Sprintf("lsiofs does not read this compression: %s FILE | zstd > NEW recompresses it; name the new file with .zst in place of .%s", program, last)
	}
	switch formats.WithoutCodec(extension) {
	case ".json", ".jsonlines", ".jl":
		return "if each line is a JSON value, try --format jsonl; jq -c '.[]' FILE > NEW.jsonl makes lines of one JSON array"
	case ".csv", ".tsv", ".text", ".md", ".log":
		return "if each line is a record, try --format lines"
	case ".zip":
		return "if it holds a Zarr store, name it, or several by a pattern such as '*.zip', with --format zarr --crop DIM=N,… (lsiofs help zarr); else unpack it"
	case ".npz":
		return "npz files hold several arrays: save each as an .npy of its own"
	case ".7z", ".rar":
		return "lsiofs does not read these archives: unpack them, and use --format files, or pack tars"
	case ".bin", ".dat", ".raw", ".tokens":
		return "if records have one size, try --format fixed --record-bytes N"
	case ".jpg", ".jpeg", ".png", ".webp", ".wav", ".flac", ".mp3", ".mp4":
		return "if each file is a sample, or those with one name up to the dot are, try --format files"
	case "":
		if extension != "" {
			return "if they are games of Leela Chess Zero, try --format lc0"
		}
	}
	return "choose what they are with --format tar, jsonl, tfrecord, npy, lines, lc0, files, or fixed and --record-bytes N (lsiofs help formats)"
}
