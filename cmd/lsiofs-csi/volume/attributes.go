package volume

import (
	"maps"
	"slices"
)

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
