package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/limit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/mounts"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/server"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/state"
	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// Config configures a Node.
type Config struct {
	Name    string // Kubernetes' name of the node
	Kubelet string // its directory, which contains the targets
	Store   *state.Store
	Program string // of lsiofs
	// Cache is the directory for everything that is cached: indexes, and data from services.
	Cache string
	// ServerArgs are additional flags of mount for all servers.
	ServerArgs []string
	Policy     volume.Policy
	Limit      limit.Memory
	// Environment is the driver's own environment, NAME=value. Servers get a part of it.
	Environment []string
	Log         *slog.Logger
	ServerLog   *os.File // servers' stderr
	// Patience is how long one call waits for a server.
	Patience time.Duration
	// Step, unless nil, is called after each change in the kernel, like the store's after each
	// change on disk.
	Step func(done string)
}

// Node is CSI's Node service. Its methods are safe for concurrent use.
type Node struct {
	csi.UnimplementedNodeServer
	c       Config
	hashKey []byte
	kubelet string // its directory with links resolved
	calls   locks  // by path: of two concurrent calls for a target, the second is refused
	targets locks  // by path: held while what is mounted there is changed; a call waits for a rebind
	starts  locks  // by server

	mu      sync.Mutex
	servers map[string]*server.Server
}

var _ csi.NodeServer = (*Node)(nil)

// Open takes over what an earlier driver has left, and repairs it. Close releases it again.
func Open(c Config) (*Node, error) {
	if c.Step == nil {
		c.Step = func(string) {}
	}
	n := &Node{c: c, servers: map[string]*server.Server{}}
	var err error
	if n.kubelet, err = filepath.EvalSymlinks(c.Kubelet); err != nil {
		return nil, fmt.Errorf("kubelet's directory: %w", err)
	}
	if n.hashKey, err = c.Store.Key(); err != nil {
		return nil, err
	}
	if err := n.takeOver(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close releases the servers, which keep running.
func (n *Node) Close() error {
	for _, s := range n.Servers() {
		s.Server.Release()
	}
	return nil
}

// Running is a server of the node.
type Running struct {
	Key    string
	Server *server.Server
}

// Servers returns the servers that were started or found.
func (n *Node) Servers() (all []Running) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, s := range n.servers {
		all = append(all, Running{key, s})
	}
	return all
}

// Store returns the store with the records of volumes and servers.
func (n *Node) Store() *state.Store { return n.c.Store }

func (n *Node) server(key string) *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[key]
}

func (n *Node) setServer(key string, s *server.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s == nil {
		delete(n.servers, key)
		return
	}
	n.servers[key] = s
}

// acquire returns the server of a volume, which may not serve yet. It starts one if there is none,
// or only a dead one.
func (n *Node) acquire(ctx context.Context, key string, v volume.Volume) (*server.Server, error) {
	unlock, err := n.starts.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s := n.server(key); s != nil {
		sound, err := n.sound(key, s)
		if err != nil || sound {
			return s, err
		}
		n.c.Log.Warn("a server is gone: another one is started", "server", key, "process", s.Process().PID)
		if err := n.end(key); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(mounts.Detach(n.c.Store.Point(key)), n.c.Limit.Remove(key)); err != nil {
		return nil, err
	}
	r := state.Server{Key: key, Dataset: v.Dataset, Args: v.Args, Credentials: len(v.Environment) > 0}
	if err := n.c.Store.PutServer(r); err != nil {
		return nil, err
	}
	s, err := server.Start(server.Config{
		Program: n.c.Program, Dataset: v.Dataset, Point: n.c.Store.Point(key), Environment: n.environment(v), Log: n.c.ServerLog,
		Args: append(append([]string{"--cache-dir=" + n.dataCache()}, n.c.ServerArgs...), v.Args...),
		Started: func(p state.Process) error {
			n.c.Step("server's process started")
			r.Process = p
			return errors.Join(n.c.Limit.Apply(key, p.PID), n.c.Store.PutServer(r))
		},
	})
	if err != nil {
		return nil, err
	}
	n.c.Log.Info("a server was started", "server", key, "process", s.Process().PID, "dataset", v.Name())
	n.setServer(key, s)
	return s, nil
}

// sound reports whether a server is alive and, if it had mounted, is still mounted.
func (n *Node) sound(key string, s *server.Server) (bool, error) {
	if !s.Alive() || !s.Serving() {
		return s.Alive(), nil
	}
	t, err := mounts.Read()
	if err != nil {
		return false, err
	}
	return len(t.At(n.c.Store.Point(key))) > 0, nil
}

// end ends a server in memory, in the kernel and as a process, whatever exists of it. The caller
// holds the server's lock.
func (n *Node) end(key string) error {
	if s := n.server(key); s != nil {
		if err := s.Stop(); err != nil {
			return err
		}
		n.setServer(key, nil)
	} else if r, found, err := n.c.Store.Server(key); err != nil {
		return err
	} else if found {
		if err := server.Kill(r.Process); err != nil {
			return err
		}
	}
	n.c.Step("server ended")
	return errors.Join(mounts.Detach(n.c.Store.Point(key)), n.c.Limit.Remove(key))
}

// users returns the volumes of a server.
func (n *Node) users(key string) (users []state.Volume, err error) {
	all, err := n.c.Store.Volumes()
	for _, v := range all {
		if v.Server == key {
			users = append(users, v)
		}
	}
	return users, err
}

// stopUnused stops a server without volumes, and removes what is left of it.
func (n *Node) stopUnused(ctx context.Context, key string) error {
	unlock, err := n.starts.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	users, err := n.users(key)
	if err != nil || len(users) > 0 {
		return err
	}
	if err := n.end(key); err != nil {
		return err
	}
	n.c.Log.Info("a server without volumes was stopped", "server", key)
	return n.c.Store.RemoveServer(key)
}

// bind shows a server's mount at a volume's target.
func (n *Node) bind(v state.Volume) error {
	point := n.c.Store.Point(v.Server)
	t, err := mounts.Read()
	if err != nil {
		return err
	}
	own := t.At(point)
	if len(own) == 0 {
		return fmt.Errorf("server %s serves, but is not mounted at %s: was it unmounted by hand?", v.Server, point)
	}
	device := own[len(own)-1].Device
	if there := t.At(v.Target); len(there) == 1 && there[0].Device == device {
		if there[0].ReadOnly == !v.Writable {
			return nil
		}
		return mounts.Protect(v.Target, !v.Writable)
	}
	if err := mounts.Detach(v.Target); err != nil {
		return err
	}
	n.c.Step("stale mount taken off")
	if err := os.Mkdir(v.Target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("target: %w", err)
	}
	n.c.Step("target made")
	if err := mounts.Bind(point, v.Target, !v.Writable); err != nil {
		return err
	}
	n.c.Step("bound")
	return nil
}

// bindOthers rebinds the server's other volumes, which still show the mount of a dead server. It
// skips targets that a call is working on.
func (n *Node) bindOthers(v state.Volume) {
	stale, err := n.stale(v)
	if err != nil {
		n.c.Log.Error("the volumes of a server can't be looked at", "server", v.Server, "error", err)
	}
	for _, other := range stale {
		unlock, ok := n.targets.try(other.Target)
		if !ok {
			continue
		}
		if err := n.rebind(other); err != nil {
			n.c.Log.Error("a volume of a server that was started again could not be bound", "volume", other.ID, "target", other.Target, "error", err)
		}
		unlock()
	}
}

// stale returns the other volumes of a server whose targets show something else.
func (n *Node) stale(v state.Volume) (stale []state.Volume, err error) {
	users, err := n.users(v.Server)
	if err != nil {
		return nil, err
	}
	t, err := mounts.Read()
	if err != nil {
		return nil, err
	}
	own := t.At(n.c.Store.Point(v.Server))
	for _, u := range users {
		there := t.At(u.Target)
		if u.Target != v.Target && len(own) > 0 && len(there) > 0 && there[len(there)-1].Device != own[len(own)-1].Device {
			stale = append(stale, u)
		}
	}
	return stale, nil
}

// rebind binds a volume that was bound before. The caller holds the lock of its target, so it is
// not unpublished meanwhile.
func (n *Node) rebind(v state.Volume) error {
	now, found, err := n.c.Store.Volume(v.Target)
	if err != nil || !found || now != v {
		return err
	}
	t, err := mounts.Read()
	if err != nil || len(t.At(v.Target)) == 0 {
		return err // kubelet will publish it, or not
	}
	return n.bind(v)
}

// locks provides one lock per name. The zero value is ready for use.
type locks struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free  chan struct{} // has an element while the lock is free
	users int           // holders and waiters
}

func (l *locks) turn(name string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if l.held == nil {
			l.held = map[string]*turn{}
		}
		l.held[name] = t
	}
	t.users++
	return t
}

func (l *locks) leave(name string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.held, name)
	}
}

// lock waits for a name's lock, or until ctx ends. The caller calls unlock once.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	t := l.turn(name)
	select {
	case <-t.free:
	case <-ctx.Done():
		l.leave(name, t)
		return nil, ctx.Err()
	}
	return func() { t.free <- struct{}{}; l.leave(name, t) }, nil
}

// try returns false if the name is locked.
func (l *locks) try(name string) (unlock func(), ok bool) {
	t := l.turn(name)
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; l.leave(name, t) }, true
	default:
		l.leave(name, t)
		return nil, false
	}
}

// inherited are the driver's environment variables that every server gets.
var inherited = []string{
	"PATH", "TMPDIR", "TZ", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOMAXPROCS", "GODEBUG",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// dataCache returns the directory where data from services is kept.
func (n *Node) dataCache() string { return filepath.Join(n.c.Cache, "data") }

// environment returns a server's environment. Without credentials of its own, a server may use the
// driver's identity (a role of the node or of the service account); with them it may not.
func (n *Node) environment(v volume.Volume) []string {
	own := len(v.Environment) > 0
	var env []string
	for _, variable := range n.c.Environment {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(inherited, name) || !own && (name == "HOME" || strings.HasPrefix(name, "AWS_")) {
			env = append(env, variable)
		}
	}
	if own {
		env = append(env, "AWS_EC2_METADATA_DISABLED=true")
	}
	// If this is set, even to "", a server refuses URLs that lead to this machine.
	env = append(env, "LSIOFS_ALLOW_URL="+strings.Join(n.c.Policy.AllowURLs, " "))
	// Named paths have been checked already; links in a dataset are followed only by its server.
	env = append(env, "LSIOFS_NEVER_READ="+strings.Join(n.c.Policy.Never, "\n"))
	return append(append(env, "XDG_CACHE_HOME="+n.c.Cache), v.Environment...)
}

// resolve checks paths again with their links resolved. If a path does not exist, its longest
// existing part is resolved, because mount may create the rest.
func resolve(paths []string, p volume.Policy) error {
	var problems []error
	for _, path := range paths {
		if _, _, err := resolved(path, p); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// resolved returns the longest existing part of a path, with links resolved, and the rest of the
// path. It returns an error if the policy does not allow the combined path.
func resolved(path string, p volume.Policy) (there, rest string, err error) {
	for at := path; ; at = filepath.Dir(at) {
		there, err = filepath.EvalSymlinks(at)
		if err == nil {
			rest = strings.TrimPrefix(path[len(at):], "/")
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", "", err
		}
		if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return "", "", fmt.Errorf("%s is a symbolic link whose target does not exist: remove the link, or create its target", at)
		}
	}
	if to := filepath.Join(there, rest); to != path {
		if err := p.Check(to); err != nil {
			return "", "", fmt.Errorf("%s leads to another place through a symbolic link: %w", path, err)
		}
	}
	return there, rest, nil
}

// makeDirectories makes missing directories. Mount would make them, too, but would follow links
// that were created after resolve had checked.
func makeDirectories(paths []string, p volume.Policy) error {
	var problems []error
	for _, path := range paths {
		there, rest, err := resolved(path, p)
		if err == nil {
			err = makeBelow(there, rest)
		}
		if err != nil && !errors.Is(err, unix.EROFS) { // then mount reports it, or can do without
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// directoryMode is the mode of run directories, which other users may read. An index is a file of
// mode 0600 in any directory.
const directoryMode = 0o755

// makeBelow makes the directories of a relative path below an existing directory. It follows no
// link.
func makeBelow(there, rest string) error {
	if rest == "" {
		return nil
	}
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	at, err := unix.Openat2(unix.AT_FDCWD, there, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return &os.PathError{Op: "open", Path: there, Err: err}
	}
	defer func() { _ = unix.Close(at) }()
	for name := range strings.SplitSeq(rest, "/") {
		there = filepath.Join(there, name)
		if err := unix.Mkdirat(at, name, directoryMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: there, Err: err}
		}
		below, err := unix.Openat2(at, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
		if err != nil {
			return &os.PathError{Op: "open", Path: there, Err: err}
		}
		_ = unix.Close(at)
		at = below
	}
	return nil
}
