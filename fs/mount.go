package fs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/fs/rings"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// Dataset is what a mount serves. *pipeline.Dataset implements it. Tests have a small one in
// memory, for schedules and faults that files can't produce.
type Dataset interface {
	Spec() spec.Spec
	Fingerprint() string
	// Records is T of the spec's epoch, EpochRecords of any.
	Records() uint64
	EpochRecords(ctx context.Context, epoch uint64) (uint64, error)
	StreamExtension() string
	Set(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (*stream.Set, error)
	Status() pipeline.Status
	// Describe renders dataset.json for the spec's epoch, DescribeEpoch for any.
	Describe() ([]byte, error)
	DescribeEpoch(ctx context.Context, epoch uint64) ([]byte, error)
	// Crops reports whether records are crops of arrays, so that workers have files of
	// stream.Crops.
	Crops() bool
	// Cubes returns the paths of the cubes that crops are cut from.
	Cubes() []string
	// Coordinates returns the coordinates of a cube, by its index in Cubes, and Coordinate reads
	// the file of one.
	Coordinates(ctx context.Context, cube int) ([]pipeline.Coordinate, error)
	Coordinate(ctx context.Context, cube int, dim string) ([]byte, error)
	// Meter counts where time goes; it always returns the same one.
	Meter() *meter.Meter
}

var _ Dataset = (*pipeline.Dataset)(nil)

// Config configures a mount.
type Config struct {
	Dataset    Dataset
	MountPoint string
	// Position is where the worker files begin.
	Position checkpoint.Position
	// Explain is passed to checkpoint.Subject.
	Explain func(fingerprint string) string
	// AllowOther lets other users read, but not restore. Without it, the kernel lets only the
	// mounting user look inside; not even root can.
	AllowOther bool
	// Readers are further users whose reads count in the checkpoint, with AllowOther.
	Readers Readers
	// OthersRestore lets other users restore, too, with AllowOther: they may write the file
	// checkpoint, but not rename another one onto it.
	OthersRestore bool
	// Rings asks for FUSE over io_uring (package rings). If the kernel does not offer it, that is
	// logged, and requests come through /dev/fuse.
	Rings bool
	Log   *slog.Logger
	// Version is shown in README and status.
	Version string
}

// Mount is a live mount. Its methods may be called concurrently.
type Mount struct {
	tree   *tree
	server *fuse.Server
	rings  *rings.Server // nil: requests come through /dev/fuse
	device string        // of the mount, as in MountEntry; see owns
	ended  chan struct{}
}

// New mounts. It repairs a stale mount at the mount point. It refuses a point with a live mount, a
// point that is not an empty directory, and a point inside the dataset. When New returns, the tree
// answers. The caller still owns the dataset, and closes it after Wait has returned.
func New(ctx context.Context, c Config) (*Mount, error) {
	return newMount(ctx, c, datasetSets(c.Dataset))
}

func newMount(ctx context.Context, c Config, open openSet) (*Mount, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	point, err := PreparePoint(ctx, c.MountPoint, datasetsOf(c.Dataset.Spec()), c.Log)
	if err != nil {
		return nil, err
	}
	if err := MayMount(point, c.AllowOther); err != nil {
		return nil, err
	}
	c.MountPoint = point
	t, err := newTree(c, open)
	if err != nil {
		return nil, err
	}
	if err := t.start(ctx, c.Position); err != nil {
		return nil, err
	}
	root := &rootNode{t: t}
	t.root = root.EmbeddedInode()
	raw := fusefs.NewNodeFS(root, &fusefs.Options{
		FirstAutomaticIno: automaticIno,
		RootStableAttr:    &fusefs.StableAttr{Ino: 1},
		Logger:            fuseLog(c.Log),
	})
	options := mountOptions(c)
	options.Logger = fuseLog(c.Log)
	if c.Rings {
		askForRings(options, c.Log)
	}
	at := point
	if os.Geteuid() != 0 {
		fd, err := mountByHelper(point, options)
		if err != nil {
			return nil, errors.Join(explainMount(point, err), sweepPoint(point))
		}
		at = fmt.Sprintf("/dev/fd/%d", fd) // this form makes go-fuse use an existing mount
	}
	server, err := fuse.NewServer(raw, at, options)
	if err != nil {
		return nil, errors.Join(explainMount(point, err), sweepPoint(point))
	}
	m := &Mount{tree: t, server: server, ended: make(chan struct{})}
	device, found := m.connect()
	ringed := rings.Serving(server, options)
	t.kernel.set(server.KernelSettings(), ringed)
	t.blockBytes = blockBytes
	if ringed {
		if err := m.startRings(raw, options, device, found); err != nil {
			return nil, errors.Join(fmt.Errorf("mount point %s: %w; try without --fuse-io-uring", point, err), sweepPoint(point))
		}
	}
	t.recorder.start()
	go m.serve()
	if err := m.settle(); err != nil {
		return nil, errors.Join(err, m.Unmount(ctx))
	}
	return m, nil
}

// connect finds out which mount this is, and the descriptor that serves it.
func (m *Mount) connect() (device int, found bool) {
	own, mounted, err := mountAt(m.tree.mountPoint)
	if err != nil || !mounted || own.Type != FileSystemType {
		return 0, false
	}
	m.device = own.Device
	if device, found = deviceOf(own); found {
		m.tree.interrupts.gone = func() bool { return hasEnded(device) }
	}
	return device, found
}

// startRings serves requests by io_uring; the kernel holds them back until then.
func (m *Mount) startRings(raw fuse.RawFileSystem, o *fuse.MountOptions, device int, found bool) (err error) {
	if !found {
		return errNoDevice
	}
	m.tree.blockBytes = ringBlockBytes
	m.tree.interrupts.unsure = true
	m.rings, err = rings.NewServer(m.server, raw, o, device, m.tree.log)
	return err
}

// sweepPoint removes what a failed mount has left; nothing was mounted there before.
func sweepPoint(point string) error {
	if _, left, err := mountAt(point); err != nil || !left {
		return err
	}
	return detach(point)
}

// settle waits until the tree answers.
func (m *Mount) settle() error {
	err := m.server.WaitMount()
	if err == nil {
		err = answersPoll(m.tree.mountPoint) // go-fuse does this itself if it made the mount
	}
	if err != nil {
		return fmt.Errorf("mount point %s: mounted, but it does not answer: %w", m.tree.mountPoint, err)
	}
	top, mounted, err := mountAt(m.tree.mountPoint)
	if err != nil {
		return err
	}
	if !mounted || !m.owns(top) {
		return fmt.Errorf("mount point %s: mounted, but another program has since unmounted it or mounted over it: try again", m.tree.mountPoint)
	}
	return nil
}

// serve answers requests until the mount is gone from everywhere.
func (m *Mount) serve() {
	defer close(m.ended)
	if m.rings != nil {
		m.rings.Serve()
	} else {
		m.server.Serve()
	}
	m.tree.close()
	m.clear()
}

// owns reports whether e is this mount, or a copy of it. The kernel reuses a mount's number as soon
// as it is free, and a device as soon as no copy of the mount is left. By then the connection has
// ended, so a device whose connection lives is this mount's own.
func (m *Mount) owns(e MountEntry) bool {
	if m.device == "" || e.Device != m.device || e.Type != FileSystemType {
		return false
	}
	fd, found := deviceOf(e)
	return found && !hasEnded(fd)
}

// clear removes the mount if it was left behind dead: umount -f ends the connection even if it
// can't unmount. By now another mount may be there, even one with the same number and device, but
// it would not be dead.
func (m *Mount) clear() {
	point := m.tree.mountPoint
	top, mounted, err := mountAt(point)
	var st unix.Statfs_t
	if err != nil || !mounted || top.Device != m.device || top.Type != FileSystemType || !isDead(unix.Statfs(point, &st)) {
		return
	}
	if err := m.detach(); err != nil {
		m.tree.log.Warn("the dead mount could not be removed: unmount it with lsiofs umount --lazy", "mount_point", point, "error", err)
	}
}

// detach removes the mount from the tree of names. It is not an error if it has been removed
// meanwhile: clear, Unmount and umount may run concurrently.
func (m *Mount) detach() error {
	err := detach(m.tree.mountPoint)
	if err == nil {
		return nil
	}
	if top, mounted, lookErr := mountAt(m.tree.mountPoint); lookErr == nil && (!mounted || top.Device != m.device) {
		return nil
	}
	return err
}

// maxBackground bounds the background requests that the kernel has in flight: reads of mappings,
// AIO and io_uring. Each one that stalls occupies one of them, so with a bound of 64, that many
// programs stopped the mappings of all others. A program may issue as many at once (madvise), and
// each takes up to 128 KiB while it is answered: a flood of 1024 was measured to take some 140 MiB,
// one of 4096 300 MiB. For a server without CAP_SYS_ADMIN the kernel has its own bound, which
// depends on the machine's memory (max_user_bgreq of the module fuse, 330 for each GiB).
const maxBackground = 1024

// mountOptions: the values were measured, or avoid traps of go-fuse.
func mountOptions(c Config) *fuse.MountOptions {
	o := &fuse.MountOptions{
		AllowOther:         c.AllowOther,
		FsName:             fsName,
		Name:               fsName,
		MaxWrite:           stream.MaxReadBytes,
		MaxBackground:      maxBackground,
		DisableSplice:      true, // it costs four system calls per read
		DisableXAttrs:      true, // go-fuse's answers to them break cp -p
		ExtraCapabilities:  fuse.CAP_DIRECT_IO_ALLOW_MMAP,
		DirectMountStrict:  os.Geteuid() == 0,
		DirectMount:        os.Geteuid() == 0,
		DirectMountFlags:   unix.MS_NOSUID | unix.MS_NODEV,
		SyncRead:           false,
		DisableReadDirPlus: false,
	}
	if c.AllowOther {
		// The owner may restore, and others may if the file's mode allows it.
		o.Options = append(o.Options, "default_permissions")
	}
	return o
}

// askForRings sets the option that requests should come by io_uring, if possible.
func askForRings(o *fuse.MountOptions, log *slog.Logger) {
	if err := rings.Offered(); err != nil {
		log.Warn("requests arrive through /dev/fuse, not io_uring", "error", err)
		return
	}
	o.ExtraCapabilities |= fuse.CAP_OVER_IO_URING
}

// errNoDevice should not happen: a kernel that has rings shows the number of the connection.
var errNoDevice = errors.New("no descriptor of /dev/fuse in /proc/self/fd")

// fuseLog receives the messages of go-fuse's tree of nodes.
func fuseLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelWarn) }

// explainMount adds to the error what a failed mount needs.
func explainMount(point string, err error) error {
	if errors.Is(err, os.ErrPermission) && os.Geteuid() == 0 {
		return fmt.Errorf("mount point %s: %w: %s", point, err, containerAdvice)
	}
	return fmt.Errorf("mount point %s: %w", point, err)
}

// End makes all reads fail with ENOTCONN, as if the process were gone. That includes reads waiting
// for storage that does not answer, which would keep the process from exiting. It returns whether
// all readers have closed their files within lastWords.
func (m *Mount) End() bool {
	m.tree.end()
	last := time.NewTimer(lastWords)
	defer last.Stop()
	select {
	case <-m.ended:
		return true
	case <-last.C:
		return false
	}
}

// lastWords is how long readers have to close their files once all reads fail.
const lastWords = 500 * time.Millisecond

// MountPoint is the absolute path of the mount, without symbolic links.
func (m *Mount) MountPoint() string { return m.tree.mountPoint }

// Identity is chosen at random for each mount and is in status.json as mount_id, so that a program
// can recognize its own mount: another one may be at the same path by now, with the same device and
// the same numbers.
func (m *Mount) Identity() string { return m.tree.identity }

// Wait returns when the tree has been unmounted, by Unmount or from outside, and all its files have
// been closed.
func (m *Mount) Wait() error {
	<-m.ended
	return nil
}

// Unmount unmounts. While files are in use, it detaches the tree, lets readers finish until ctx
// ends, and then returns ctx's error; End disconnects the remaining readers. It may be called
// again. It leaves all other mounts in place: this one may be gone from its mount point and live on
// as a copy in a container or another mount namespace.
func (m *Mount) Unmount(ctx context.Context) error {
	select {
	case <-m.ended:
		return nil
	default:
	}
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	top, mounted := TopMount(mounts, m.tree.mountPoint)
	switch {
	case mounted && m.owns(top):
		if err := m.detach(); err != nil {
			return fmt.Errorf("unmount %s: %w", m.tree.mountPoint, err)
		}
	case slices.ContainsFunc(mounts, func(e MountEntry) bool { return e.Point == m.tree.mountPoint && m.owns(e) }):
		return fmt.Errorf("unmount %s: another file system (%s) is mounted on top of this one: unmount that first", m.tree.mountPoint, top.Type)
	}
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		open, _ := m.tree.handles.count()
		if open == 0 {
			return fmt.Errorf("unmount %s: no stream is open, but the mount is in use, such as by a working directory or a copy of it in a container: %w", m.tree.mountPoint, ctx.Err())
		}
		return fmt.Errorf("unmount %s: programs are still reading it (%s): %w", m.tree.mountPoint, english.Plural(open, "open file", ""), ctx.Err())
	}
}

// fusermount returns the program that mounts and unmounts for ordinary users.
func fusermount() (string, error) {
	for _, name := range []string{"fusermount3", "/bin/fusermount3", "fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("fusermount3 is missing: install the package fuse3, or mount as root")
}

// mountByHelper mounts as an ordinary user, with fusermount3, which passes back the descriptor of
// /dev/fuse. go-fuse could do it as well, but sends the helper's messages to this process's stderr,
// which may be a log or closed.
func mountByHelper(point string, o *fuse.MountOptions) (fd int, err error) {
	helper, err := fusermount()
	if err != nil {
		return 0, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(ends[0])
	theirs := os.NewFile(uintptr(ends[1]), "fusermount")
	options := append([]string{"fsname=" + o.FsName, "subtype=" + o.Name, fmt.Sprintf("max_read=%d", o.MaxWrite)}, o.Options...)
	if o.AllowOther {
		options = append(options, "allow_other")
	}
	c := exec.Command(helper, "-o", strings.Join(options, ","), "--", point)
	c.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	c.ExtraFiles = []*os.File{theirs}
	said, err := c.CombinedOutput()
	_ = theirs.Close() // so that the read below ends
	if err != nil {
		text := strings.Join(strings.Fields(string(said)), " ")
		if text == "" {
			text = fmt.Sprintf("%s: %v", helper, err)
		}
		return 0, errors.New(text)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(ends[0], make([]byte, 4), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("%s returned no descriptor: %w", helper, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return 0, errors.Join(fmt.Errorf("%s returned no descriptor of /dev/fuse", helper), err)
}

// answersPoll opens and polls a file that go-fuse provides for that. The kernel learns that files
// of this mount can't be polled. Otherwise Go's runtime would poll them, and hang if the same
// process serves them.
func answersPoll(point string) error {
	fd, err := unix.Open(point+"/.go-fuse-epoll-hack", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err
}

// waitingThreads bounds the threads that wait in the kernel for requests: FUSE's library has no
// more.
const waitingThreads = 16

// MoreThreads raises GOMAXPROCS above the number of processors, for a process that serves a mount.
// Code that sizes work by the number of processors must read that number first.
//
// A thread that waits in the kernel for the next request still occupies a slot of GOMAXPROCS, until
// the runtime's monitor takes it away 20 µs to 10 ms later. At one request per MiB this cost a
// fifth of the time of two processors while decoders waited, and a quarter of the throughput of
// four readers.
//
// So one is added for each processor, up to the number of waiting threads. Not more, because each
// costs memory: FUSE's library and Go keep buffers for each.
//
// It does nothing if GOMAXPROCS is set in the environment. After the call, Go no longer follows
// changes of a container's CPU limit.
func MoreThreads() {
	if os.Getenv("GOMAXPROCS") == "" {
		cores := runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(cores + min(cores, waitingThreads))
	}
}
