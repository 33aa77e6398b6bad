package volume

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// Volume is what a pod asks for. It does not change after Parse.
type Volume struct {
	// Dataset is mount's positional argument, "" for a mixture.
	Dataset string
	// Args are mount's flags, each --name=value, in an order determined by the attributes.
	Args []string
	// Environment contains the credentials, NAME=value, sorted. It is empty if the pod provides
	// none.
	Environment []string
	// Paths are the paths of this node that Dataset and Args name, each up to its first pattern.
	Paths []string
	// Directories are those of Paths that are directories and are created if missing.
	Directories []string
	// Writable means that the pod may write checkpoint.
	Writable bool
}

// Name returns what is read, for people. It has no URL query, which may be a token.
func (v Volume) Name() string {
	if v.Dataset == "" {
		return "a mixture"
	}
	name, _, _ := strings.Cut(v.Dataset, "?")
	return name
}

// Bounds of what is accepted. A value becomes one argument of a process; the kernel's limit is 128
// KiB.
const (
	maxValueBytes = 16 << 10
	maxAllBytes   = 256 << 10
	maxLines      = 1024
)

// podInformation is the prefix of attributes that kubelet adds (podInfoOnMount).
const podInformation = "csi.storage.k8s.io/"

// Parse parses a volume's attributes and the keys of its Secret. The error lists all problems and
// contains no value of a secret.
func Parse(attributes, secrets map[string]string, p Policy) (Volume, error) {
	q := parser{policy: p}
	var unknown []string
	total := 0
	for _, name := range sortedKeys(attributes) {
		value := attributes[name]
		total += len(name) + len(value)
		k, known := flags[name]
		switch {
		case strings.HasPrefix(name, podInformation):
		case len(value) > maxValueBytes:
			q.problem("attribute %s has %d bytes: at most %d are taken", short(name), len(value), maxValueBytes)
		case strings.ContainsRune(value, 0):
			q.problem("attribute %s has a zero byte", short(name))
		case name == dataset:
			q.v.Dataset = value
			q.location(name, value)
		case name == checkpoint:
			q.checkpoint(value)
		case known:
			q.flag(name, value, k)
		default:
			unknown = append(unknown, unknownName(name))
		}
	}
	if total > maxAllBytes {
		q.problem("the attributes have %d bytes: at most %d are taken", total, maxAllBytes)
	}
	if len(unknown) > 0 {
		q.problem("there is no attribute %s: there are %s", strings.Join(unknown, ", "), strings.Join(Names(), ", "))
	}
	_, mixed := attributes["mix"]
	switch {
	case mixed && q.v.Dataset != "":
		q.problem("attributes dataset and mix both say what is read: leave one of them out")
	case !mixed && q.v.Dataset == "":
		q.problem(`attribute dataset is missing: name a directory of the node, or s3://BUCKET/PREFIX or https://…`)
	}
	q.memory(attributes["memory"])
	q.credentials(secrets)
	return q.v, errors.Join(q.problems...)
}

type parser struct {
	v        Volume
	policy   Policy
	problems []error
}

func (q *parser) problem(format string, a ...any) {
	q.problems = append(q.problems, fmt.Errorf(format, a...))
}

func (q *parser) checkpoint(value string) {
	switch value {
	case "none", "":
	case "write":
		q.v.Writable = true
	default:
		q.problem("attribute checkpoint (%q) must be one of none, write", short(value))
	}
}

func (q *parser) flag(name, value string, k kind) {
	lines := []string{value}
	if k == repeated || k == relative || k == mixture {
		lines = slices.DeleteFunc(strings.Split(value, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
		if len(lines) > maxLines {
			q.problem("attribute %s has %d lines, and must have at most %d", name, len(lines), maxLines)
			return
		}
	}
	for _, line := range lines {
		switch k {
		case path:
			q.path(name, line)
		case directory:
			if q.path(name, line) {
				q.v.Directories = append(q.v.Directories, filepath.Clean(line))
			}
		case mixture:
			if _, source, is := strings.Cut(line, ":"); is { // otherwise mount reports what is wrong
				q.location(name, source)
			}
		case relative:
			pattern := line
			if _, after, named := strings.Cut(line, "="); named {
				pattern = after
			}
			if climbs(pattern) || strings.HasPrefix(pattern, "/") {
				q.problem("attribute %s (%q) must be a pattern inside of the dataset: write it without .. and without / at its beginning", name, short(line))
			}
		}
		q.v.Args = append(q.v.Args, "--"+name+"="+line)
	}
}

// location checks and adds a dataset, on this node or at a service.
func (q *parser) location(name, value string) {
	for _, scheme := range []string{"s3://", "s3+https://", "s3+http://", "https://", "http://"} {
		if strings.HasPrefix(value, scheme) {
			return
		}
	}
	if before, _, is := strings.Cut(value, "://"); is {
		q.problem("attribute %s: %s:// is not supported: write a path of the node, or an s3://, https:// or http:// URL", name, short(before))
		return
	}
	prefix, err := q.policy.CheckPattern(value)
	if err != nil {
		q.problem("attribute %s: %w", name, err)
		return
	}
	q.v.Paths = append(q.v.Paths, prefix)
}

// path checks and adds a path that is not a pattern, and reports whether it may be named.
func (q *parser) path(name, value string) bool {
	if err := q.policy.Check(value); err != nil {
		q.problem("attribute %s: %w", name, err)
		return false
	}
	q.v.Paths = append(q.v.Paths, filepath.Clean(value))
	return true
}

// unknownName quotes an unknown name, with the reason if mount has such a flag.
func unknownName(name string) string {
	if why, is := leftOut[name]; is {
		return fmt.Sprintf("%q (%s)", name, why)
	}
	return fmt.Sprintf("%q", short(name))
}

// memory makes sure that a server can stay within its limit: mount takes --memory, and up to half
// as much again for its tables and decoders.
func (q *parser) memory(value string) {
	most := q.policy.MemoryLimitBytes / 2
	if most == 0 {
		return
	}
	if value == "" {
		if most < defaultMemoryBytes {
			q.v.Args = append(q.v.Args, fmt.Sprintf("--memory=%dB", most))
		}
		return
	}
	n, err := humanize.ParseBytes(value)
	if err == nil && n > uint64(most) { // otherwise mount reports what is wrong
		q.problem("attribute memory (%s) must be at most %s: this node's servers may take %s each, of which --memory is half",
			short(value), humanize.IBytes(uint64(most)), humanize.IBytes(uint64(q.policy.MemoryLimitBytes)))
	}
}

// defaultMemoryBytes is mount's own default of --memory.
const defaultMemoryBytes = 1 << 30

// short bounds the length of texts quoted in messages.
func short(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// kind is how an attribute becomes an argument.
type kind int

const (
	single    kind = iota // --name=value
	repeated              // --name=line, for each line
	path                  // single, a file of this node
	directory             // single, a directory of this node, which is created if missing
	relative              // repeated, and relative to the dataset
	mixture               // repeated, NAME=WEIGHT:DATASET
)

// Attributes that are not flags.
const (
	dataset    = "dataset"    // the positional argument
	checkpoint = "checkpoint" // none or write
)

// flags are the flags of `lsiofs mount` that a pod may set.
var flags = map[string]kind{
	// Data
	"format": single, "split": single, "split-by": single, "split-seed": single, "sample": single, "sample-seed": single,
	"on-corrupt": single, "array": relative, "record-bytes": single, "stride-bytes": single, "header-bytes": single,
	"remainder": single, "lc0-check": single, "as": single, "max-record": single, "exclude": repeated,
	"columns": single, "pack": single, "eos": single, "dtype": single, "cut": single,
	"mix": mixture, "mix-length": single, "mix-by": single,
	// Crops
	"crop": single, "stride": single, "step": single, "jitter": single, "select": repeated, "wrap": single, "edge": single,
	"crops": path, "stack": single, "scale": single, "offset": single, "missing": single,
	// Growing
	"grow": single, "run": directory, "window": single, "newest": single, "min-new": single, "settle": single, "poll": single,
	"hold": single, "snapshot": path,
	// Order
	"seed": single, "epoch": single, "shuffle": single, "shuffle-size": single, "lanes": single, "chunk-bytes": single,
	"chunk-records": single, "groups": single,
	// Workers
	"workers": single, "batch": single, "tail": single, "deal": single,
	// Reading
	"memory": single, "read": single, "spool-max": single, "read-timeout": single, "direct": single, "io": single,
	// Remote
	"region": single, "endpoint": single, "addressing": single, "anonymous": single, "requester-pays": single, "ca-file": path, "unversioned": single,
	"connections": single, "hedge": single, "lookahead": single,
	// Cache
	"cache-fill": single, "warm": single, "index-dir": directory,
	// Mount
	"resume": path, "fuse-io-uring": single,
}

// leftOut are the other flags of mount, and why they are not attributes.
var leftOut = map[string]string{
	"daemon": driversOwn, "log-file": driversOwn, "while-pid": driversOwn, "rmdir": driversOwn, "json": driversOwn,
	"log-format": driversOwn, "log-level": driversOwn, "help": driversOwn,
	"allow-other": readersAll, "readers": readersAll, "restore": "who restores is said by attribute checkpoint",
	"auth-file": "tokens come from LSIOFS_HTTP_TOKEN in the volume's Secret",
	"cache-dir": nodesOwn, "cache-size": nodesOwn, "cache-reserve": nodesOwn, "spool-dir": nodesOwn,
}

const (
	driversOwn = "the driver runs its servers as it sees fit"
	readersAll = "all users of a pod may read"
	nodesOwn   = "a node has one cache for all volumes, which its administrator sets"
)

// Names returns the names of all attributes, sorted.
func Names() []string {
	return slices.Sorted(maps.Keys(withOwn()))
}

func withOwn() map[string]kind {
	all := maps.Clone(flags)
	all[dataset], all[checkpoint] = single, single
	return all
}

// LeftOut returns mount's other flags, sorted.
func LeftOut() []string { return slices.Sorted(maps.Keys(leftOut)) }
