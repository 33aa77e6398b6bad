package doctor

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// reportWords are the words in lsiofs's own messages and the system's errors. No other words of
// free text are shown.
//
//go:embed words.txt
var reportWords string

// redactor removes private parts from texts. It does not search for private data, which can't be
// recognized, but passes only what is known to be harmless: words of lsiofs's own messages, numbers
// that are positions in a file or epoch, types of file systems. Paths are replaced by stand-ins,
// the same one for the same path. A report has one redactor, which is not safe for concurrent use.
type redactor struct {
	words   map[string]bool
	secrets []string // names removed from all other texts that are shown
	kinds   map[string]int
	stand   map[string]string // path → stand-in
	cut     int               // number of texts that something was removed from
}

func newRedactor() *redactor {
	v := &redactor{words: map[string]bool{}, kinds: map[string]int{}, stand: map[string]string{}}
	for word := range strings.FieldsSeq(reportWords) {
		v.words[word] = true
	}
	v.words["root"] = true // a field of dataset.json
	if host, err := os.Hostname(); err == nil {
		v.secrets = append(v.secrets, host)
	}
	if home, err := os.UserHomeDir(); err == nil {
		v.secrets = append(v.secrets, home)
	}
	if u, err := user.Current(); err == nil {
		v.secrets = append(v.secrets, u.Username)
	}
	v.secrets = append(v.secrets, os.Getenv("USER"), os.Getenv("LOGNAME"))
	// A name this short, or root, reveals nothing and is part of other words.
	v.secrets = slices.DeleteFunc(v.secrets, func(s string) bool { return len(s) < 4 || s == "root" || s == "/root" })
	return v
}

// standIn returns a path's name in the report: MNT, MNT-2, …
func (v *redactor) standIn(kind, path string) string {
	if path == "" {
		return ""
	}
	// If path is relative to another directory, it may be the end of a known dataset's path.
	for known, name := range v.stand {
		if strings.HasPrefix(name, kind) && strings.HasSuffix(known, "/"+path) {
			return name
		}
	}
	if name, there := v.stand[path]; there {
		return name
	}
	v.kinds[kind]++
	v.stand[path] = kind
	if n := v.kinds[kind]; n > 1 {
		v.stand[path] = fmt.Sprintf("%s-%d", kind, n)
	}
	return v.stand[path]
}

// hide removes the names of this machine and its user from other texts.
func (v *redactor) hide(s string) string {
	for _, secret := range v.secrets {
		s = strings.ReplaceAll(s, secret, "…")
	}
	return s
}

const told = "…" // replaces hidden text

// Numbers are shown if they follow one of these words, are a range, or have a unit.
var (
	countable    = regexp.MustCompile(`^(record|offset|byte|member|frame|chunk|epoch|worker|lane|at|to|of|than|within|has|is|version)$`)
	number       = regexp.MustCompile(`^\d{1,20}(\.\d+)?(B|KiB|MiB|GiB|ms|s)?$`)
	quantity     = regexp.MustCompile(`^\d{1,5}(\.\d+)?$`) // if a unit follows
	unit         = regexp.MustCompile(`^(%|ms|s|(b|kib|mib|gib|tib)(/s)?)$`)
	rangeBegin   = regexp.MustCompile(`^\[\d+,$`)
	rangeEnd     = regexp.MustCompile(`^\d+\):?$`)
	kernelDevice = regexp.MustCompile(`^(sd|vd|xvd|hd|dm-|md|loop|nvme|mmcblk|zram|ram|pmem|nbd)[0-9a-z]*$`)
	workerFile   = regexp.MustCompile(`^worker-\d+\.`)
)

// text passes words of lsiofs's own messages and numbers that are positions. It replaces everything
// between them by one "…".
func (v *redactor) text(s string) string {
	var out []string
	last, open := "", false
	tokens := strings.Fields(s)
	for i, token := range tokens {
		word := strings.ToLower(strings.Trim(token, `.,:;()"'`))
		keep := v.words[word]
		switch {
		case keep:
		case rangeBegin.MatchString(token):
			open, keep = true, true
		case rangeEnd.MatchString(token):
			open, keep = false, open
		case unit.MatchString(word):
			keep = i > 0 && quantity.MatchString(tokens[i-1])
		default:
			keep = number.MatchString(word) && countable.MatchString(last) ||
				quantity.MatchString(token) && i+1 < len(tokens) && unit.MatchString(strings.ToLower(strings.TrimRight(tokens[i+1], ".,:;)")))
		}
		last = word
		switch {
		case keep:
			out = append(out, token)
		case len(out) == 0 || out[len(out)-1] != told:
			out = append(out, told)
		}
	}
	text := strings.Join(out, " ")
	if strings.Contains(text, told) {
		v.cut++
	}
	return text
}

// key passes a field's name if it consists of known words joined by "_".
func (v *redactor) key(s string) string {
	for word := range strings.SplitSeq(s, "_") {
		if !v.words[word] {
			return v.text(s)
		}
	}
	return s
}

// tree returns a JSON document without private data. Numbers and booleans are shown; strings depend
// on their key.
func (v *redactor) tree(key string, x any) any {
	switch x := x.(type) {
	case map[string]any:
		m := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(x)) { // in order, because stand-ins are numbered
			name := v.key(k)
			for n := 2; m[name] != nil; n++ { // the redactor may give two keys the same name
				name = fmt.Sprintf("%s %d", v.key(k), n)
			}
			m[name] = v.tree(k, x[k])
		}
		return m
	case []any:
		list := make([]any, len(x))
		for i, value := range x {
			list[i] = v.tree(key, value)
		}
		return list
	case string:
		return v.field(key, x)
	}
	return x // json.Number, bool, nil
}

// hash, release and part match fingerprints, and kernel versions and their parts.
var (
	hash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	release = regexp.MustCompile(`^[0-9A-Za-z.+~_()-]{1,64}$`)
	part    = regexp.MustCompile(`^[0-9.]{4,32}$`)
)

func (v *redactor) field(key, s string) string {
	_, noTime := time.Parse(time.RFC3339Nano, s)
	switch {
	case key == "mount_point":
		return v.standIn("MNT", s)
	case key == "dataset", key == "root":
		return v.standIn("DATASET", s)
	case key == "shard":
		return v.standIn("SHARD", s)
	case noTime == nil, key == "fingerprint" && hash.MatchString(s), key == "part" && part.MatchString(s):
		return s
	case (key == "version" || key == "release" || key == "fuse_protocol") && release.MatchString(s):
		return v.hide(s)
	case key == "name" && workerFile.MatchString(s):
		return s[:strings.IndexByte(s, '.')]
	}
	return v.text(s)
}

// told lists the kinds of private data, whether each is in the report, and what replaces it.
func (v *redactor) told(r Report) [][2]string {
	var names []string
	for _, kind := range slices.Sorted(maps.Keys(v.kinds)) {
		name := kind
		if n := v.kinds[kind]; n > 1 {
			name += fmt.Sprintf(" to %s-%d", kind, n)
		}
		names = append(names, name)
	}
	paths := "not in it; replaced with " + strings.Join(names, ", ")
	if len(names) == 0 {
		paths = "not in it"
	}
	texts := "complete"
	if v.cut > 0 {
		texts = fmt.Sprintf("only lsiofs's own words, and positions in files; the rest is replaced with … (in %s)", terminal.Plural(uint64(v.cut), "text"))
	}
	rows := [][2]string{
		{"names of user and host, home directory, environment", "not in it"},
		{"paths", paths},
		{"names of shards, keys and contents of records", "not in it"},
		{"texts of errors", texts},
		{"this machine", "in it: kernel, distribution, processors, memory, limits, kinds and device names of storage"},
	}
	if r.Dataset != nil {
		rows = append(rows, [2]string{"the dataset", "in it: format, counts, sizes, and its fingerprint, a hash of its files' names and sizes"})
	}
	if r.Mount != nil {
		rows = append(rows, [2]string{"the mount", "in it: settings, counters, times, numbers of reading processes, and the dataset's fingerprint, a hash of its files' names and sizes"})
	}
	return rows
}
