package discover

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Selection is a summary of what was taken of a target, and what was left out.
type Selection struct {
	// Taken are the shards by naming, in dataset order: at most mostGroups of Groups.
	Taken  []Group
	Groups int
	Shards int
	// LeftOut counts what is not a shard: files, and directories that were not entered, which count
	// as one. FirstLeft are the first ones by path, at most firstLeft.
	LeftOut   int
	FirstLeft []Verdict
	// Notes are what else a user should know about the selection.
	Notes []string
	// Files lists everything, by path, if Config.Files is set.
	Files []Verdict
}

// Group is the shards of one naming.
type Group struct {
	Naming string `json:"naming"` // "train-{00000..00146}.tar"
	Shards int    `json:"shards"`
}

// Verdict is the decision on a file. The path of a directory that was not entered ends in '/'.
type Verdict struct {
	Path   string `json:"path"`
	Shard  bool   `json:"shard"`
	Reason string `json:"reason"`
}

// PassedOver is the reason for a file of another format in a growing dataset.
const PassedOver = noName

const (
	mostGroups = 3
	firstLeft  = 3
)

// selection summarizes what was taken and what was left out, including by the listing.
func (f *finder) selection(files []file, d decision) Selection {
	s := Selection{Notes: slices.Concat(f.unused, f.notes)}
	for _, n := range namingsOf(files) {
		var paths []string
		for _, i := range n.files {
			if d.taken[i] {
				paths = append(paths, files[i].Object.Path)
			}
		}
		if len(paths) == 0 {
			continue
		}
		s.Shards += len(paths)
		if s.Groups++; s.Groups <= mostGroups {
			s.Taken = append(s.Taken, Group{NamingText(paths), len(paths)})
		}
	}
	var left []Verdict
	for _, v := range f.left {
		left = append(left, v)
	}
	for i := range files {
		v := Verdict{Path: files[i].Object.Path, Shard: d.taken[i], Reason: d.reasons[i]}
		if f.Files {
			s.Files = append(s.Files, v)
		}
		if !v.Shard {
			left = append(left, v)
		}
	}
	sortVerdicts(left)
	s.LeftOut = len(left)
	s.FirstLeft = slices.Clone(left[:min(firstLeft, len(left))])
	if f.Files {
		for _, v := range f.left {
			s.Files = append(s.Files, v)
		}
		sortVerdicts(s.Files)
	}
	return s
}

// sortVerdicts sorts by path. It avoids slices.SortFunc, which adds some 10 KB to the binary for
// each type.
func sortVerdicts(list []Verdict) {
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
}

// SelectionOf returns the selection of a growing dataset, from its shards, in dataset order, and
// the verdicts on other files.
func SelectionOf(shards []string, left []Verdict) Selection {
	var s Selection
	of := map[string]int{}
	var groups [][]string
	for _, path := range shards {
		n, known := of[NamingOf(path)]
		if !known {
			n = len(groups)
			of[NamingOf(path)] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], path)
	}
	s.Shards, s.Groups = len(shards), len(groups)
	for _, paths := range groups[:min(mostGroups, len(groups))] {
		s.Taken = append(s.Taken, Group{NamingText(paths), len(paths)})
	}
	sortVerdicts(left)
	s.LeftOut = len(left)
	s.FirstLeft = slices.Clone(left[:min(firstLeft, len(left))])
	return s
}

// Add adds the selection of a source of a mixture, whose shards have its name as a prefix.
func (s *Selection) Add(source string, x *Selection) {
	for _, g := range x.Taken {
		if len(s.Taken) < mostGroups {
			s.Taken = append(s.Taken, Group{source + "/" + g.Naming, g.Shards})
		}
	}
	s.Groups, s.Shards, s.LeftOut = s.Groups+x.Groups, s.Shards+x.Shards, s.LeftOut+x.LeftOut
	named := func(v Verdict) Verdict {
		v.Path = source + "/" + v.Path
		return v
	}
	for _, v := range x.FirstLeft {
		if len(s.FirstLeft) < firstLeft {
			s.FirstLeft = append(s.FirstLeft, named(v))
		}
	}
	for _, v := range x.Files {
		s.Files = append(s.Files, named(v))
	}
	for _, n := range x.Notes {
		s.Notes = append(s.Notes, source+": "+n)
	}
}

// TakenText describes in one line what was taken: "train-{00000..00146}.tar, 147 shards".
func (s *Selection) TakenText() string {
	var names []string
	for _, g := range s.Taken {
		names = append(names, g.Naming)
	}
	if more := s.Groups - len(s.Taken); more > 0 {
		names = append(names, fmt.Sprintf("and %s more", plural(more, "naming")))
	}
	return strings.Join(names, ", ") + ", " + plural(s.Shards, "shard")
}

// LeftOutText describes in one line what was left out, "" for nothing.
func (s *Selection) LeftOutText() string {
	if s.LeftOut == 0 {
		return ""
	}
	var names []string
	for _, v := range s.FirstLeft {
		names = append(names, v.Path)
	}
	text := plural(s.LeftOut, "file") + ": " + strings.Join(names, ", ")
	if s.LeftOut > len(names) {
		text += ", …"
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}

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
		case d.reasons[first] != otherName && d.reasons[first] != describesShard:
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
		f.notes = append(f.notes, fmt.Sprintf("the files left out hold more bytes than the shards: %s against %s, such as %s",
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
	return "choose what they are with --format tar, jsonl, tfrecord, npy, parquet, lines, lc0, files, or fixed and --record-bytes N (lsiofs help formats)"
}
