// Package target parses the names of datasets in buckets and on web servers, such as
// s3://bucket/train/. It looks only at the text and makes no requests. Its errors state what to
// write instead, and never contain user names, passwords or queries.
//
//	s3://bucket                     the whole bucket
//	s3://bucket/train/              what is below train/
//	s3://bucket/train               the same, or an object of this name: the service knows
//	s3://bucket/train/*.tar         patterns as for files: * ** ? [] {a,b} {000..146} \
//	s3+https://host/bucket/train    the same at a service of one's own
//	s3+https://host/path//bucket    one whose interface is below a path of its host
//	https://host/train/000.tar      one file
//	https://host/train/{000..146}.tar?sig=…   files by number; ? begins the query
//	https://host/train/list.txt     a list of files; .json: a list of shards of wids
package target

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Target is what a dataset's name refers to: one of its fields is set.
type Target struct {
	Bucket *Bucket
	Web    *Web
}

// IsRemote reports whether a dataset's name has a scheme, as in s3://bucket, and so is not a path.
// If a file with this very name exists, the caller should prefer it.
func IsRemote(name string) bool {
	_, _, ok := cutScheme(name)
	return ok || isJoined(name)
}

// isJoined reports whether a name joins others by "::", as in fsspec and webdataset. A key may
// contain "::", but not a URL after it.
func isJoined(name string) bool {
	for _, after, found := strings.Cut(name, "::"); found; _, after, found = strings.Cut(after, "::") {
		if _, _, is := cutScheme(after); is {
			return true
		}
	}
	return false
}

// refuseJoined returns the error for a name that isJoined.
func refuseJoined(name string) error {
	if _, _, is := cutScheme(name); !is {
		first, _, _ := strings.Cut(name, "::")
		return fmt.Errorf("the dataset's name begins with %s::, as fsspec has them: write the URL alone; what is read of a service is cached anyway (lsiofs help remote)", first)
	}
	return fmt.Errorf("the dataset's name joins URLs by :: and one is taken: name files of one folder by a pattern, as in s3://BUCKET/{000..146}.tar, or mix datasets with --mix")
}

// cutScheme splits name after its scheme, which is returned in lower case.
func cutScheme(name string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(name, "://")
	if !ok || scheme == "" || !isLetter(scheme[0]) {
		return "", "", false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !isLetter(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

// Parse parses a name that IsRemote.
func Parse(name string) (Target, error) {
	if isJoined(name) {
		return Target{}, refuseJoined(name)
	}
	scheme, rest, ok := cutScheme(name)
	if !ok {
		return Target{}, fmt.Errorf("the dataset has no scheme such as s3:// or https://")
	}
	for i := range len(rest) {
		if rest[i] < ' ' || rest[i] == 0x7f {
			return Target{}, fmt.Errorf("the %s:// dataset's name has a control character in it", scheme)
		}
	}
	switch scheme {
	case "s3+https", "s3+http":
		b, err := parseAtService(scheme, rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Bucket: &b}, nil
	case "s3":
		b, err := parseBucket(rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Bucket: &b}, nil
	case "http", "https":
		w, err := parseWeb(scheme, rest)
		if err != nil {
			return Target{}, err
		}
		return Target{Web: &w}, nil
	case "gs", "gcs":
		return Target{}, fmt.Errorf("%s:// is not supported yet: Google's storage answers s3:// too, with --endpoint https://storage.googleapis.com and HMAC keys", scheme)
	case "az", "abfs", "abfss":
		return Target{}, fmt.Errorf("%s:// is not supported: give the https:// URL of the container, with its SAS token as the query", scheme)
	case "s3a", "s3n":
		return Target{}, fmt.Errorf("%s:// is not supported: write s3://", scheme)
	case "hf":
		return Target{}, fmt.Errorf("hf:// is not supported yet: download the files (hf download --repo-type dataset), or copy them to a bucket")
	case "file":
		return Target{}, fmt.Errorf("file:// is not supported: give the path alone")
	}
	return Target{}, fmt.Errorf("%s:// is not supported: datasets are paths, s3:// buckets, and files by https:// or http://", scheme)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// checkComponents rejects paths that no shard can have: a listing would skip them, or they would be
// another object to the service.
func checkComponents(path, where string) error {
	for component := range strings.SplitSeq(path, "/") {
		switch component {
		case "":
			return fmt.Errorf("%s has two slashes in a row, or begins with one: objects with empty components in their names are not read", where)
		case ".", "..":
			return fmt.Errorf("%s has the component %q: write the path without it", where, component)
		}
	}
	return nil
}

// ParseText parses a list of files, one per line: a URL, or a path relative to the list, each
// optionally with ranges such as {000..146}. Empty lines and lines that begin with # are skipped.
// Files outside of the list's folder, including those on other servers, get paths that Elsewhere
// parses. A line without a query gets the list's query if it is for the list's server.
func (w Web) ParseText(text string) ([]Name, error) {
	c := collector{web: w, seen: make(map[string]bool)}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := c.add("", line, -1); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return c.all()
}

// ParseShards parses a list of shards in the format of wids (webdataset): a JSON document with a
// shardlist, whose URLs are relative to its base or to the document itself.
func (w Web) ParseShards(text []byte) ([]Name, error) {
	var document struct {
		Kind      string `json:"__kind__"`
		Base      string `json:"base"`
		Shardlist []struct {
			URL      string `json:"url"`
			Filesize *int64 `json:"filesize"`
		} `json:"shardlist"`
		Datasets json.RawMessage `json:"datasets"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("it is no JSON document of shards: %w", err)
	}
	if document.Shardlist == nil {
		if document.Datasets != nil {
			return nil, fmt.Errorf("it names several datasets: give the list of one of them")
		}
		return nil, fmt.Errorf("it has no shardlist: a .json list is one of wids (webdataset), other lists are .txt, a file a line")
	}
	c := collector{web: w, seen: make(map[string]bool)}
	for i, shard := range document.Shardlist {
		size := int64(-1)
		if shard.Filesize != nil && *shard.Filesize > 0 {
			size = *shard.Filesize
		}
		if err := c.add(document.Base, shard.URL, size); err != nil {
			return nil, fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return c.all()
}

// collector collects the files of a list, each once.
type collector struct {
	web   Web
	names []Name
	seen  map[string]bool
}

func (c *collector) all() ([]Name, error) {
	if len(c.names) == 0 {
		return nil, fmt.Errorf("it names no files")
	}
	return c.names, nil
}

// add appends the files of one entry, which is relative to base, which is itself relative to the
// list.
func (c *collector) add(base, entry string, sizeBytes int64) error {
	path, query, found := strings.Cut(entry, "?")
	host, path, err := c.place(base, path)
	if err != nil {
		return err
	}
	if !found && (host == "" || host == c.web.Scheme+"://"+c.web.Host) { // the query may be a secret
		query = c.web.Query
	}
	if strings.ContainsAny(query, " #") || strings.ContainsFunc(entry, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("an entry has a space, a # or a control character in it: percent-encode it")
	}
	if err := checkWebPath(path, cmp.Or(host, c.web.Root())); err != nil {
		return err
	}
	names, err := expand(path, query)
	if err != nil {
		return err
	}
	if len(c.names)+len(names) > maxNames {
		return fmt.Errorf("the list names more than %d files", maxNames)
	}
	for _, name := range names {
		if name.Root = host; host != "" {
			name.Path = elsewhere(host) + name.Path
		}
		if c.seen[name.Path] {
			return fmt.Errorf("%s is named twice", name.Path)
		}
		c.seen[name.Path] = true
		name.SizeBytes = sizeBytes
		c.names = append(c.names, name)
	}
	return nil
}

// place returns an entry's path, still percent-encoded. It is relative to the list's folder if host
// is "", and otherwise to host, the URL of a server.
func (c *collector) place(base, entry string) (host, path string, err error) {
	full := entry
	if !IsRemote(entry) && !strings.HasPrefix(entry, "/") && base != "" {
		full = strings.TrimSuffix(base, "/") + "/" + entry
	}
	host = c.web.Scheme + "://" + c.web.Host
	if scheme, rest, ok := cutScheme(full); ok {
		authority, path, _ := strings.Cut(rest, "/")
		switch {
		case scheme != "https" && scheme != "http":
			return "", "", fmt.Errorf("an entry begins with %s://: a list names files at web servers, https:// or http://", scheme)
		case scheme == "http" && c.web.Scheme == "https":
			return "", "", fmt.Errorf("an entry is of http://, where anybody on the way could change the bytes, and the list of https://: write https:// in the list")
		case strings.Contains(authority, "@"):
			return "", "", fmt.Errorf("an entry has a user name in it: give it in ~/.netrc, or a token with --auth-file")
		}
		if authority, err = parseHost(scheme, authority); err != nil {
			return "", "", err
		}
		host, full = scheme+"://"+authority, "/"+path
	}
	for strings.HasPrefix(full, "./") {
		full = full[2:]
	}
	path, absolute := strings.CutPrefix(full, "/")
	if !absolute {
		if _, _, is := Elsewhere(full); is {
			return "", "", fmt.Errorf("an entry begins with a scheme and one slash: write https://HOST/PATH")
		}
		return "", full, nil
	}
	// The folder may be encoded differently in the entry.
	depth := strings.Count(c.web.Dir, "/")
	components := strings.SplitAfterN(path, "/", depth+1)
	dir, err := canonical(strings.Join(components[:min(depth, len(components))], ""))
	if err != nil || host != c.web.Scheme+"://"+c.web.Host || dir != c.web.Dir || len(components) <= depth {
		return host, path, nil
	}
	if _, _, is := Elsewhere(components[depth]); is {
		return host, path, nil // in the folder, such a path would mean a file elsewhere
	}
	return "", components[depth], nil
}

// elsewhere returns the prefix of the paths of a list's files at host, outside of its folder.
func elsewhere(host string) string { return strings.Replace(host, "://", ":/", 1) + "/" }

// Elsewhere returns the location of a file that a list names outside of its own folder. The path
// https:/HOST/DIR/FILE means DIR/FILE at https://HOST. is reports whether the path has this form.
func Elsewhere(path string) (host, file string, is bool) {
	scheme, rest, _ := strings.Cut(path, ":/")
	host, file, found := strings.Cut(rest, "/")
	if !found || scheme != "https" && scheme != "http" || host == "" {
		return "", "", false
	}
	return scheme + "://" + host, file, true
}

// maxNames bounds the files of one dataset at a web server: each has to be asked for its size.
const maxNames = 1 << 20

// numbers is one range, such as {000..146}.
type numbers struct {
	low, high uint64
	width     int // zero-padded to this width
}

// expand returns the files that a percent-encoded path with ranges of numbers names. The last range
// varies fastest.
func expand(raw, query string) ([]Name, error) {
	var literals []string
	var ranges []numbers
	rest, total := raw, uint64(1)
	for {
		before, from, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, fmt.Errorf("the path has a } without {: where the name has one, write %%7D")
		}
		literals = append(literals, before)
		if !found {
			break
		}
		within, after, found := strings.Cut(from, "}")
		r, err := parseNumbers(within)
		if !found || err != nil {
			return nil, fmt.Errorf("braces stand for ranges of numbers here, as {000..146}: %w", err)
		}
		count := r.high - r.low + 1
		if count > maxNames/total {
			return nil, fmt.Errorf("the ranges stand for more than %d files", maxNames)
		}
		total *= count
		ranges, rest = append(ranges, r), after
	}
	names := make([]Name, 0, total)
	for i := range total {
		name, err := newName(combine(literals, ranges, i), query)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// combine inserts the i-th combination of numbers between the literals.
func combine(literals []string, ranges []numbers, i uint64) string {
	parts := make([]string, 0, 2*len(ranges)+1)
	for k := len(ranges) - 1; k >= 0; k-- {
		count := ranges[k].high - ranges[k].low + 1
		digits := strconv.FormatUint(ranges[k].low+i%count, 10)
		i /= count
		pad := strings.Repeat("0", max(0, ranges[k].width-len(digits)))
		parts = append(parts, literals[k+1], pad+digits)
	}
	parts = append(parts, literals[0])
	var b strings.Builder
	for k := len(parts) - 1; k >= 0; k-- {
		b.WriteString(parts[k])
	}
	return b.String()
}

// newName returns the file with a percent-encoded path.
func newName(raw, query string) (Name, error) {
	path, err := decode(raw)
	if err != nil {
		return Name{}, err
	}
	return Name{Path: path, Raw: escape(raw, sent), Query: query, SizeBytes: -1}, nil
}

func parseNumbers(s string) (numbers, error) {
	a, b, found := strings.Cut(s, "..")
	if !found || !isNumber(a) || !isNumber(b) {
		return numbers{}, fmt.Errorf("%q is none; where the name has a brace, write %%7B or %%7D", "{"+s+"}")
	}
	low, err1 := strconv.ParseUint(a, 10, 32)
	high, err2 := strconv.ParseUint(b, 10, 32)
	if err1 != nil || err2 != nil || len(a) > 32 || len(b) > 32 {
		return numbers{}, fmt.Errorf("{%s} has a number that is too large", s)
	}
	if low > high {
		return numbers{}, fmt.Errorf("{%s} goes down: write {%s..%s}", s, b, a)
	}
	r := numbers{low: low, high: high}
	if len(a) > 1 && a[0] == '0' || len(b) > 1 && b[0] == '0' {
		r.width = max(len(a), len(b))
	}
	return r, nil
}

func isNumber(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}
