package integration

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/lsiofs/lsiofs/"

// arrows lists which packages of lsiofs a package, and the packages below it, may import, and why
// not the others. The first entry that matches a package is its rule.
var arrows = []struct {
	pkg string
	may []string
	why string
}{
	{"pipeline/spec", nil, "the user's configuration is plain data that every other package uses"},
	{"pipeline/strictjson", nil, "a scanner knows no documents"},
	{"pipeline/order", []string{"pipeline/order", "pipeline/spec"}, "the order is a pure function, compared with another implementation: it knows no bytes"},
	{"pipeline/plan", nil, "planning turns ranges into reads and makes none"},
	{"pipeline/cgroup", nil, "the limits of a process don't depend on what it does"},
	{"pipeline/meter", nil, "counters don't know what is counted"},
	{"pipeline/explain", []string{"pipeline/meter"}, "a verdict follows from the counters alone"},
	{"pipeline/blockcache", []string{"uring"}, "blocks are kept by key, whatever they hold"},
	{"pipeline/storage/crops", []string{"pipeline/blockcache", "pipeline/spec", "pipeline/storage", "pipeline/format/npy", "pipeline/strictjson", "pipeline/zarr", "uring"}, "crops are computed from objects, as package zarr defines; lists of origins are npy; uring maps the memory of chunks"},
	{"pipeline/storage/local", []string{"pipeline/cgroup", "pipeline/storage", "uring"}, "storage reads ranges of files and knows no formats"},
	{"pipeline/storage/remote/s3", []string{"pipeline/printable", "pipeline/storage"}, "the output of a credential program is shown to people"},
	{"pipeline/storage", []string{"pipeline/storage", "uring"}, "storage reads ranges of objects and knows no formats"},
	{"pipeline/diskcache", []string{"pipeline/diskcache", "pipeline/storage", "uring"}, "a cache keeps ranges of objects and knows no formats"},
	{"pipeline/tune", []string{"pipeline/storage", "pipeline/tune", "uring"}, "storage is measured without a dataset's formats and order"},
	{"pipeline/format/zarr", []string{"pipeline/format", "pipeline/zarr"}, "crops are defined in one place"},
	{"pipeline/format/parquet", []string{"pipeline/rows"}, "decoding columns does not depend on how rows are presented, indexed or read"},
	{"pipeline/format/tables", []string{"pipeline/format", "pipeline/rows", "pipeline/spec"}, "tables are a format and a codec: what presents rows, and what decodes columns, don't know of these"},
	{"pipeline/format/tokens", []string{"pipeline/format", "pipeline/rows", "pipeline/spec"}, "tokens are packed in one place"},
	{"pipeline/format/formattest", []string{"pipeline/format", "pipeline/spec", "integration/serve"}, "the suite leaves some of its tests to the nightly run"},
	{"pipeline/format", []string{"pipeline/format", "pipeline/spec", "pipeline/strictjson"}, "formats know nothing of shuffling, storage and mounts, so a new one is a package and a line of a table"},
	{"pipeline/rows", []string{"pipeline/format/npy", "pipeline/format/tar"}, "how rows are presented does not depend on the format of their files"},
	{"pipeline/catalog/discover", []string{"pipeline/spec", "pipeline/storage", "pipeline/format"}, "which files are shards does not depend on a stored index"},
	{"pipeline/catalog/index", []string{"pipeline/storage", "pipeline/format", "uring"}, "the stored index has the records' extents; it does not find or cut shards"},
	{"pipeline/catalog", []string{"pipeline/catalog", "pipeline/spec", "pipeline/storage", "pipeline/format"}, "the order depends on the catalog, not the other way round"},
	{"pipeline/read/gather", []string{"pipeline/catalog", "pipeline/read/budget", "pipeline/read/chunkmap", "pipeline/read/options", "pipeline/read/window", "pipeline/meter", "pipeline/plan", "pipeline/storage", "pipeline/format"}, "gathering knows nothing of the other ways to read"},
	{"pipeline/read/budget", []string{"pipeline/meter", "uring"}, "memory is charged and pinned, whatever it holds"},
	{"pipeline/read/mapped", []string{"pipeline/read/budget", "pipeline/storage"}, "ranges of files are mapped by number: this knows neither records nor readers"},
	{"pipeline/read/chunkmap", []string{"pipeline/catalog", "pipeline/read/budget", "pipeline/format", "pipeline/storage"}, "where pieces are follows from the catalog alone"},
	{"pipeline/read/choose", []string{"pipeline/catalog", "pipeline/read/budget", "pipeline/read/chunkmap", "pipeline/spec", "pipeline/storage"}, "the choice follows from the index and the settings: nothing is read for it"},
	{"pipeline/read/options", []string{"pipeline/diskcache", "pipeline/format", "pipeline/meter", "pipeline/read/budget", "pipeline/read/choose", "pipeline/read/chunkmap", "pipeline/spec", "pipeline/storage", "uring"}, "options are what all packages below read share, so they know none of these"},
	{"pipeline/read/window", []string{"pipeline/catalog", "pipeline/read/chunkmap", "pipeline/read/choose", "pipeline/storage"}, "the window announces what comes next to readers and to a storage that plans"},
	{"pipeline/read/decode", []string{"pipeline/catalog", "pipeline/diskcache", "pipeline/read/budget", "pipeline/read/choose", "pipeline/read/chunkmap", "pipeline/read/options", "pipeline/meter", "pipeline/storage", "pipeline/format"}, "decoders and the spool deliver what they are asked for"},
	{"pipeline/read/scan", []string{"pipeline/catalog", "pipeline/diskcache", "pipeline/read/options", "pipeline/read/window", "pipeline/read/budget", "pipeline/read/decode", "pipeline/read/mapped", "pipeline/read/chunkmap", "pipeline/read/choose", "pipeline/meter", "pipeline/storage", "pipeline/format", "uring"}, "scanning knows nothing of gathering"},
	{"pipeline/read/readtest", []string{"pipeline/catalog", "pipeline/read/budget", "pipeline/read/chunkmap", "pipeline/order", "pipeline/spec", "pipeline/storage", "pipeline/format", "uring"}, "tests read datasets in real orders"},
	{"pipeline/read", []string{"pipeline/read", "pipeline/catalog", "pipeline/diskcache", "pipeline/meter", "pipeline/plan", "pipeline/storage", "pipeline/format", "pipeline/spec", "uring"}, "a reader returns records in any sequence and must not know which order it is"},
	{"pipeline/stream", []string{"pipeline/catalog", "pipeline/read", "pipeline/meter", "pipeline/order", "pipeline/spec", "pipeline/format", "uring"}, "a stream turns records into bytes and reads nothing itself"},
	{"pipeline/filter/ledger", nil, "the ledger records which results are done, not what they contain"},
	{"pipeline/filter/units", []string{"pipeline/format"}, "units are cut and assembled without files and processes"},
	{"pipeline/filter/command", []string{"pipeline/printable"}, "programs are run without knowing what for"},
	{"pipeline/filter", []string{"pipeline/catalog/discover", "pipeline/filter", "pipeline/growing/watch", "pipeline/spec", "pipeline/storage", "pipeline/format", "uring"}, "a filter turns shards into shards: it knows neither the order nor mounts"},
	{"pipeline/zarr/blosc", nil, "a blosc buffer describes its own decoding"},
	{"pipeline/zarr", []string{"pipeline/order", "pipeline/spec", "pipeline/strictjson", "pipeline/zarr"}, "the contents of a Zarr store follow from its documents, without reading; random origins are drawn as in the order"},
	{"pipeline", []string{"pipeline", "uring"}, "the assembly knows neither FUSE nor flags, so that cat, a server or another program can use it"},
	{"uring/uringbench", []string{"uring"}, "the benchmark uses the engine as others do"},
	{"uring", nil, "the engine reads files and knows no datasets"},
	{"checkpoint", []string{"pipeline/order", "pipeline/spec", "pipeline/strictjson"}, "a checkpoint is a document, valid without a mount"},
	{"fs", []string{"fs", "checkpoint", "pipeline", "pipeline/order", "pipeline/spec", "pipeline/stream", "pipeline/read", "uring"}, "the tree of names knows no formats and reads no shards"},
	{"cmd/lsiofs/exit", nil, "exit codes are a table, and errors that carry one"},
	{"cmd/lsiofs/terminal", []string{"checkpoint", "pipeline/printable"}, "output does not depend on its contents; a file is written as a checkpoint is"},
	{"cmd/lsiofs/goldentest", nil, "it compares texts"},
	{"cmd/lsiofs/servicetest", []string{"integration/serve"}, "it captures the output of any program"},
	{"cmd/lsiofs/manual", []string{"pipeline/format", "pipeline/order"}, "the manual is text; specifications are next to the code that they define"},
	{"cmd/lsiofs/build", nil, "the version does not depend on what the program does"},
	{"cmd/lsiofs/opening", []string{"cmd/lsiofs/exit", "cmd/lsiofs/terminal", "checkpoint", "pipeline"}, "a dataset is opened, and resumed, the same way by every verb"},
	{"cmd/lsiofs/inspect", []string{"cmd/lsiofs/opening", "cmd/lsiofs/terminal", "pipeline"}, "inspecting a dataset needs no mount"},
	{"cmd/lsiofs/top", []string{"cmd/lsiofs/exit", "cmd/lsiofs/style", "cmd/lsiofs/terminal", "fs", "pipeline/explain", "pipeline/printable"}, "top reads the status files of mounts and nothing else"},
	{"cmd/lsiofs/tune", []string{"cmd/lsiofs/exit", "cmd/lsiofs/terminal", "pipeline/catalog", "pipeline/storage", "pipeline/tune"}, "storage is measured without a dataset's formats and order"},
	{"cmd/lsiofs-csi/volume", nil, "a volume's parameters are parsed without a node"},
	{"cmd/lsiofs-csi/state", nil, "the stored state does not depend on its readers"},
	{"cmd/lsiofs-csi/mounts", nil, "the mount table is the kernel's"},
	{"cmd/lsiofs-csi/limit", nil, "any process can be limited"},
	{"cmd/lsiofs-csi/metrics", nil, "pages are merged as text"},
	{"cmd/lsiofs-csi/identity", nil, "the driver's identity does not depend on what it serves"},
	{"cmd/lsiofs-csi/server", []string{"cmd/lsiofs-csi/mounts", "cmd/lsiofs-csi/state"}, "a server is a process with a mount, and knows no volumes"},
	{"cmd/lsiofs-csi/scratch", nil, "test directories do not depend on what is tested"},
	{"cmd/lsiofs-csi", []string{"cmd/lsiofs-csi"}, "the driver uses lsiofs as a program, and stays out of its module"},
	{"cmd/lsiofs", []string{"cmd/lsiofs", "checkpoint", "fs", "pipeline", "uring"}, "a command turns flags into a spec, and works through pipeline and fs"},
	{"integration/bench", []string{"integration/bench", "cmd/lsiofs", "pipeline", "uring"}, "the regression gate is a command of its own, which measures as lsiofs bench does"},
	{"integration", []string{"integration/serve"}, "these tests look at the program from outside"},
	{"examples", nil, "examples are programs of users, who have no lsiofs to import"},
}

// onlyIn lists the only package that may import a library.
var onlyIn = []struct{ library, pkg, why string }{
	{"github.com/hanwen/go-fuse", "fs", "everything below fs works without FUSE"},
	{"github.com/godzie44/go-uring", "uring", "the library has traps that one package has to know"},
	{"github.com/klauspost/compress", "pipeline/format", "codecs belong to format"},
	{"github.com/pierrec/lz4", "pipeline/format", "codecs belong to format"},
	{"github.com/minio/minio-go", "pipeline/storage/remote/s3", "one package signs requests and knows where credentials are"},
	{"github.com/schollz/progressbar", "cmd/lsiofs/terminal", "what is drawn on a terminal must not break the lines of others"},
	{"github.com/gdamore/tcell", "cmd/lsiofs/top", "one verb draws on the whole screen"},
	{"github.com/prometheus", "fs", "metrics are a file of the mount"},
	{"google.golang.org/grpc", "cmd/lsiofs-csi", "the driver alone is called by others"},
	{"github.com/container-storage-interface", "cmd/lsiofs-csi", "lsiofs knows nothing of clusters"},
	{"k8s.io", "cmd/lsiofs-csi", "lsiofs knows nothing of clusters"},
}

// alsoIn are exceptions to onlyIn.
var alsoIn = map[string][]string{
	"integration/backing":  {"github.com/hanwen/go-fuse"},                               // it is another file system, below the one under test
	"pipeline/run":         {"github.com/klauspost/compress"},                           // a snapshot is one gzip file, not part of a dataset
	"pipeline/zarr/blosc":  {"github.com/klauspost/compress", "github.com/pierrec/lz4"}, // other codecs compress its blocks
	"pipeline/zarr/encode": {"github.com/klauspost/compress", "github.com/pierrec/lz4"}, // it writes chunks
	"pipeline/zarr/codec":  {"github.com/klauspost/compress", "github.com/pierrec/lz4"}, // chunks are decoded without the packages for reading a shard
}

// flagLibraries are for package cmd/lsiofs only, not for those below it, which get the flags'
// values.
var flagLibraries = []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}

// pure packages do no I/O, read no clock and draw no randomness.
var pure = map[string][]string{
	"pipeline/order":         {"os", "io", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"pipeline/plan":          {"os", "io", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"pipeline/explain":       {"os", "io", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"pipeline/zarr":          {"os", "io", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"cmd/lsiofs-csi/volume":  {"os", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"cmd/lsiofs-csi/metrics": {"os", "io", "net", "time", "math/rand", "math/rand/v2", "log/slog", "context"},
	"pipeline/spec":          {"os", "io", "net", "math/rand", "math/rand/v2", "log/slog", "context"},
}

// below reports whether pkg is parent or below it.
func below(pkg, parent string) bool {
	return pkg == parent || strings.HasPrefix(pkg, parent+"/")
}

func TestImportsGoOneWay(t *testing.T) {
	var out []byte
	for _, dir := range []string{"..", driver} {
		cmd := exec.Command("go", "list", "-buildvcs=false", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		list, err := cmd.Output()
		require.NoError(t, err, "%s", &stderr)
		out = append(out, list...)
	}
	rules := map[string]bool{}
	for _, a := range arrows {
		require.False(t, rules[a.pkg], "%s has two rules", a.pkg)
		rules[a.pkg] = true
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		packages++
		for _, path := range fields[1:] {
			checkImport(t, pkg, strings.TrimPrefix(path, module), strings.HasPrefix(path, module))
		}
	}
	require.Greater(t, packages, 10)
}

func checkImport(t *testing.T, pkg, path string, own bool) {
	if own {
		i := slices.IndexFunc(arrows, func(a struct {
			pkg string
			may []string
			why string
		}) bool {
			return below(pkg, a.pkg)
		})
		if i < 0 {
			t.Errorf("package %s is in no rule of this test: add one, with its reason", pkg)
			return
		}
		if !slices.ContainsFunc(arrows[i].may, func(m string) bool { return below(path, m) }) {
			t.Errorf("%s must not import %s: %s", pkg, path, arrows[i].why)
		}
		return
	}
	for _, rule := range onlyIn {
		if below(path, rule.library) && !below(pkg, rule.pkg) && !slices.Contains(alsoIn[pkg], rule.library) {
			t.Errorf("%s must not import %s: %s", pkg, path, rule.why)
		}
	}
	if slices.Contains(flagLibraries, path) && pkg != "cmd/lsiofs" && pkg != "integration/bench/gate" {
		t.Errorf("%s must not import %s: flags are a matter of the command line", pkg, path)
	}
	if slices.Contains(pure[pkg], path) {
		t.Errorf("%s must not import %s: it is a pure function of its arguments", pkg, path)
	}
}

// driver is the directory of the CSI driver's module, whose code has to follow the same rules.
const driver = "../cmd/lsiofs-csi"

// TestPackageAndFileNamesAreSpecific forbids catch-all names.
func TestPackageAndFileNamesAreSpecific(t *testing.T) {
	walkTree(t, func(path string, e os.DirEntry) {
		name, _, _ := strings.Cut(e.Name(), ".")
		for _, part := range strings.Split(name, "_") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "contract"}, part) {
				t.Errorf("%s: a name that says nothing about what is in it", path)
			}
		}
	})
}

// walkTree calls f with every file and directory of the repository except those of git and npm.
// Others may write there meanwhile: what disappears is skipped.
func walkTree(t *testing.T, f func(path string, e os.DirEntry)) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, e os.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git") {
			return filepath.SkipDir
		}
		found++
		f(path, e)
		return nil
	}))
	require.Greater(t, found, 100)
}

// A file has one subject.
func TestFilesStayShort(t *testing.T) {
	walkTree(t, func(path string, _ os.DirEntry) {
		if filepath.Ext(path) != ".go" {
			return
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if n := strings.Count(string(b), "\n"); n > 800 {
			t.Errorf("%s has %d lines: cut it by subject", path, n)
		}
	})
}
