// Command lsiofs-csi is lsiofs' CSI node plugin: it runs on every node of a Kubernetes cluster and
// mounts datasets for pods, as volumes.
//
//	kubelet ──Registration──► identity     the driver's identity
//	        ──Node, Identity─► node ──► volume   attributes → flags of mount     (pure)
//	                            │  ├──► state    what is on disk
//	                            │  ├──► mounts   the kernel's table, bind mounts
//	                            │  ├──► server   child processes `lsiofs mount`
//	                            │  └──► limit    their memory
//	Prometheus ──/metrics─────► page ──► metrics  one page out of many            (pure)
//
// It is a separate module, so that lsiofs does not depend on gRPC and CSI's types. It runs the
// program lsiofs and imports none of its packages.
//
// SIGTERM ends the driver and leaves servers and mounts in place for the next driver to find. In a
// container, which ends with the driver, its servers end, too. Package node describes what happens
// to volumes then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/limit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/metrics"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/node"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

func main() {
	o, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "lsiofs-csi:", err)
		os.Exit(2)
	case o.version:
		fmt.Println(version())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "lsiofs-csi:", err)
		os.Exit(1)
	}
}

// version returns the version of the module from the build information.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(devel)"
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	log, err := logger(o)
	if err != nil {
		return err
	}
	if len(o.allowPaths) == 0 {
		log.Warn("pods may read any directory that this container sees, but for those of kubelet and the system: name directories with --allow-path")
	}
	for _, dir := range []string{o.state, o.cache} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// The kernel's mount table contains no symbolic links.
	if o.state, err = filepath.EvalSymlinks(o.state); err != nil {
		return err
	}
	// Two drivers would treat each other's servers as their own.
	lock, err := onlyDriver(o.state)
	if err != nil {
		return err
	}
	defer lock.Close()
	store, err := state.Open(o.state, nil)
	if err != nil {
		return err
	}
	memory := limit.New(int64(o.memoryLimit))
	n, err := node.Open(node.Config{
		Name: o.node, Kubelet: o.kubelet, Store: store, Program: o.program, Cache: o.cache,
		ServerArgs: []string{"--cache-size=" + o.cacheSize, "--cache-reserve=" + o.cacheReserve, "--log-format=" + o.logFormat},
		Policy: volume.Policy{
			Allow: withResolved(o.allowPaths), AllowURLs: o.allowURLs, Never: volume.Never(withResolved([]string{o.kubelet, o.state, o.cache})...), MemoryLimitBytes: int64(o.memoryLimit),
		},
		Limit: memory, Environment: os.Environ(), Log: log, ServerLog: os.Stderr, Patience: o.patience,
	})
	if err != nil {
		return err
	}
	log.Info("the driver is ready", "version", version(), "lsiofs", o.program, "memory_limit", o.memoryLimit.String(), "limited_by", memory.String())
	return errors.Join(serve(ctx, o, n, log), n.Close())
}

func logger(o options) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level (%s) must be debug, info, warn or error", o.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}

// onlyDriver locks a state directory for as long as the file is open.
//
// It is a record lock, which children do not inherit. If a driver is killed while it starts a
// server, the child has the driver's files open until its exec, and the next driver must not be
// refused because of that. Nothing else in this process opens the file, because closing it would
// drop the lock.
func onlyDriver(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	whole := syscall.Flock_t{Type: syscall.F_WRLCK}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &whole)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) { // POSIX allows both
		who := "another process"
		if syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &whole) == nil && whole.Type != syscall.F_UNLCK && whole.Pid > 0 {
			who = fmt.Sprintf("process %d", whole.Pid)
		}
		err = fmt.Errorf("another driver (%s) uses it: end that one first, or name another directory", who)
	}
	return nil, errors.Join(fmt.Errorf("lock --state %s: %w", dir, err), f.Close())
}

// withResolved returns directories as they are written, and also with their links resolved.
func withResolved(dirs []string) []string {
	all := append([]string{}, dirs...)
	for _, dir := range dirs {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
			all = append(all, resolved)
		}
	}
	return all
}

// scrapeTime is how long all servers together may take to return their metrics. Prometheus waits 10
// s by default.
const scrapeTime = 3 * time.Second

// page returns the metrics of the driver and of all its servers. A server that does not answer has
// only lsiofs_csi_server_up 0.
func page(ctx context.Context, n *node.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	volumes, err := n.Store().Volumes()
	if err != nil {
		return "", err
	}
	servers := n.Servers()
	texts := make([]string, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		if s.Server.Alive() && s.Server.Serving() {
			all.Go(func() {
				if text, err := s.Server.Read(ctx, "metrics"); err == nil {
					texts[i] = string(text)
				}
			})
		}
	}
	all.Wait()
	var own strings.Builder
	fmt.Fprintf(&own, "# HELP lsiofs_csi_volumes Volumes that are published on this node.\n# TYPE lsiofs_csi_volumes gauge\nlsiofs_csi_volumes %d\n", len(volumes))
	own.WriteString("# HELP lsiofs_csi_volume_info Which server a pod's volume is of.\n# TYPE lsiofs_csi_volume_info gauge\n")
	for _, v := range volumes {
		fmt.Fprintf(&own, "lsiofs_csi_volume_info{%s,%s,%s,%s} 1\n", metrics.Label("server", v.Server), metrics.Label("volume", v.ID),
			metrics.Label("namespace", v.Namespace), metrics.Label("pod", v.Pod))
	}
	own.WriteString("# HELP lsiofs_csi_server_up Whether a server answers.\n# TYPE lsiofs_csi_server_up gauge\n")
	pages := map[string]string{}
	for i, s := range servers {
		up := 0
		if texts[i] != "" {
			up, pages[s.Key] = 1, texts[i]
		}
		fmt.Fprintf(&own, "lsiofs_csi_server_up{%s} %d\n", metrics.Label("server", s.Key), up)
	}
	return own.String() + metrics.Merge(pages), nil
}
