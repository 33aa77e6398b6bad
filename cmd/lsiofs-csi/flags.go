package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/limit"
)

// options are the values of the command line.
type options struct {
	endpoint, registration, node, state, cache, program string
	metrics, health, kubelet                            string
	cacheSize, cacheReserve, logLevel, logFormat        string
	memoryLimit                                         size
	allowPaths, allowURLs                               list
	patience                                            time.Duration
	version                                             bool
}

const about = `lsiofs-csi is a CSI node plugin: pods name a dataset and settings in a volume, and
read its shuffled streams as files. It runs on every node, as root, next to kubelet.

Each combination of dataset, settings and credentials has one server per node, a
child process "lsiofs mount", which all pods with that combination share.

Flags:
`

// parseFlags parses the command line. Help goes to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{memoryLimit: 4 << 30}
	f := flag.NewFlagSet("lsiofs-csi", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { fmt.Fprint(out, about); f.PrintDefaults() }
	f.StringVar(&o.endpoint, "endpoint", "unix:///var/lib/kubelet/plugins/lsiofs.csi/csi.sock", "`socket` on which to serve CSI")
	f.StringVar(&o.registration, "registration", "/var/lib/kubelet/plugins_registry", "kubelet's plugin registration `directory`; empty: don't register the driver")
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`name` of the node (default: NODE_NAME in the environment)")
	f.StringVar(&o.kubelet, "kubelet", "/var/lib/kubelet", "kubelet's `directory`: volumes are published only below it, and datasets may not be there")
	f.StringVar(&o.state, "state", "/var/lib/kubelet/plugins/lsiofs.csi", "`directory` for the driver's state and the servers' mounts; must be mounted with Bidirectional propagation, so that other containers see the mounts")
	f.StringVar(&o.cache, "cache", "/var/cache/lsiofs", "`directory` on the node's disk for indexes and for cached data from buckets and web servers, for all volumes")
	f.StringVar(&o.cacheSize, "cache-size", "auto", "maximum size of the cache, like --cache-size of mount: auto, off, a `size` or N%")
	f.StringVar(&o.cacheReserve, "cache-reserve", "auto", "free space that the cache leaves on its disk, like --cache-reserve of mount: auto or a `size`")
	f.StringVar(&o.program, "lsiofs", "", "`path` of lsiofs (default: in this program's directory, otherwise in PATH)")
	f.Var(&o.allowPaths, "allow-path", "`directory` on the node that may contain datasets and other files that volumes name; may be repeated; default: all that the driver's container can see, except for those of kubelet and the system")
	f.Var(&o.allowURLs, "allow-url", "`URL` of a service at an address of the node (loopback, link-local, or of its interfaces) to which datasets and endpoints may lead, such as http://HOST:PORT; may be repeated; default: none. A proxy must be listed, too, wherever it is")
	f.Var(&o.memoryLimit, "memory-limit", "maximum memory of a server, as a `size`; only a server that exceeds it is killed (0: no limit)")
	f.DurationVar(&o.patience, "patience", 100*time.Second, "how long a call from kubelet, which times out after two minutes, waits for a server that is indexing; the next call continues to wait")
	f.StringVar(&o.metrics, "metrics", "", "`address` at which to serve Prometheus metrics of the driver and its servers, as /metrics: unix:///PATH or :PORT (default: none)")
	f.StringVar(&o.health, "health", "", "`address` at which to serve the liveness probe, as /healthz: :PORT or unix:///PATH (default: none)")
	f.StringVar(&o.logLevel, "log-level", "info", "write log messages of this `level` and above to stderr: debug, info, warn, error")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log: `text or json`")
	f.BoolVar(&o.version, "version", false, "print the version, and exit")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("lsiofs-csi takes flags, but no arguments: leave out %q", f.Args())
	}
	return o, o.check()
}

// check reports all problems at once.
func (o *options) check() error {
	if o.version {
		return nil
	}
	var problems []error
	problem := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	if o.node == "" {
		problem("--node is missing: set it, or NODE_NAME in the environment (fieldRef spec.nodeName)")
	}
	if _, path, is := strings.Cut(o.endpoint, "unix://"); !is || !filepath.IsAbs(path) {
		problem("--endpoint (%s) must be unix:///PATH", o.endpoint)
	}
	for name, dir := range map[string]*string{"kubelet": &o.kubelet, "state": &o.state, "cache": &o.cache} {
		if !filepath.IsAbs(*dir) {
			problem("--%s (%q) must be an absolute path", name, *dir)
		}
		*dir = filepath.Clean(*dir)
	}
	for i, dir := range o.allowPaths {
		if !filepath.IsAbs(dir) {
			problem("--allow-path (%q) must be an absolute path", dir)
		}
		o.allowPaths[i] = filepath.Clean(dir)
	}
	for _, text := range o.allowURLs {
		if u, err := url.Parse(text); err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(text, " \t\n") {
			problem("--allow-url (%q) must be http://HOST:PORT or https://HOST:PORT", text)
		}
	}
	if o.memoryLimit != 0 && o.memoryLimit < limit.LeastBytes {
		problem("--memory-limit (%s) must be 0, for none, or at least %d MiB", &o.memoryLimit, limit.LeastBytes>>20)
	}
	if o.patience <= 0 {
		problem("--patience (%v) must be above 0", o.patience)
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		problem("--log-format (%s) must be text or json", o.logFormat)
	}
	if o.program == "" {
		var err error
		if o.program, err = findProgram(); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// findProgram looks for lsiofs next to this program, then in PATH.
func findProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "lsiofs")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("lsiofs")
	if err != nil {
		return "", errors.New("the program lsiofs is neither in this program's directory nor in PATH: name it with --lsiofs")
	}
	return filepath.Abs(path)
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ", ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// size is a number of bytes with a unit.
type size int64

func (s *size) String() string { return humanize.IBytes(uint64(*s)) }

func (s *size) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is not a size, such as 4GiB", text)
	}
	*s = size(n)
	return nil
}
