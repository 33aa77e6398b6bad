package target

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

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
