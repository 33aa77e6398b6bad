package doctor

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/fs/rings"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// machine is the data that doctor examines, as plain values, so that the conclusions can be tested
// without such a machine.
type machine struct {
	release     string // of the kernel
	root        bool
	mountCap    bool          // CAP_SYS_ADMIN in effect
	fuse        error         // from opening /dev/fuse for reading and writing
	fuseMode    iofs.FileMode // of /dev/fuse
	fusermount  string        // path; "" for none
	fuseConf    string        // text of /etc/fuse.conf
	ring        error         // why io_uring can't be used
	fuseRings   error         // why mounts can't take their requests through it
	nofile      unix.Rlimit
	memlock     unix.Rlimit
	memory      int64 // of the machine
	allowed     int64 // what this process may use of it
	indexDir    string
	indexDirErr error // from writing to it
	mounts      []leftMount
	profiles    []filesystem.ListedProfile // of storages
}

// leftMount is a mount of lsiofs and whether its server answers.
type leftMount struct {
	point string
	err   error
}

// thisMachine gathers all data. It creates the index directory if it is missing.
func thisMachine(indexDir string) machine {
	m := mountingMachine()
	conf, _ := os.ReadFile("/etc/fuse.conf") // a missing file counts as empty
	m.fuseConf = string(conf)
	m.ring, m.fuseRings = probeRing(), rings.Offered()
	meminfo, _ := os.ReadFile("/proc/meminfo")
	m.memory, m.allowed = cgroup.Meminfo(meminfo, "MemTotal"), cgroup.AllowedBytes()
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &m.nofile)
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &m.memlock)
	if m.indexDir, _, m.indexDirErr = index.DirectoryFor(indexDir, ""); m.indexDirErr == nil {
		m.indexDirErr = probeDirectory(m.indexDir)
	}
	m.mounts = probeMounts()
	if dir, err := filesystem.ProfileDir(); err == nil {
		m.profiles = filesystem.ListProfiles(dir, profilesShown)
	}
	return m
}

// mountingMachine gathers what a mount depends on, and changes nothing.
func mountingMachine() machine {
	m := machine{root: os.Geteuid() == 0, mountCap: hasMountCapability()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.release = unix.ByteSliceToString(name.Release[:])
	}
	if info, err := os.Stat("/dev/fuse"); err == nil {
		m.fuseMode = info.Mode().Perm()
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if m.fuse = err; err == nil {
		f.Close()
	}
	// An error means that it is missing, which "" represents.
	m.fusermount, _ = exec.LookPath("fusermount3")
	return m
}

// profilesShown bounds the storage profiles that doctor lists.
const profilesShown = 32

func probeRing() error {
	e, err := uring.Open(uring.ModeUring)
	if err != nil {
		return err
	}
	return e.Close()
}

// probeDirectory creates the directory if it is missing, and creates and removes a file in it.
func probeDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "doctor-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// hasMountCapability reads bit 21, CAP_SYS_ADMIN, of the effective set.
func hasMountCapability() bool {
	hex, _ := fieldOf("/proc/self/status", "CapEff:")
	caps, err := strconv.ParseUint(hex, 16, 64)
	return err == nil && caps&(1<<unix.CAP_SYS_ADMIN) != 0
}

// mountPatience is how long a mount may take to answer a stat: a live server
// answers within milliseconds, a hanging one never.
const mountPatience = 2 * time.Second

func probeMounts() []leftMount {
	mounts, err := fs.Mounts()
	if err != nil {
		return nil
	}
	var found []leftMount
	for _, m := range mounts {
		if m.Type != fs.FileSystemType {
			continue
		}
		found = append(found, leftMount{m.Point, probeMount(m)})
	}
	return found
}

// probeMount returns why a mount does not answer. It sends nothing to a server that is seen to be
// stopped: until that is answered, the mount would be busy, and its owner could not unmount it. Only
// where the kernel does not show which process serves a mount is the mount itself asked.
func probeMount(m fs.MountEntry) error {
	if s := fs.FindServer(m); s != nil {
		defer s.Close()
		if s.Stopped() {
			return fmt.Errorf("its server is stopped (process %d, by SIGSTOP or Ctrl-Z): kill -CONT %d resumes it", s.PID, s.PID)
		}
	}
	answer := make(chan error, 1)
	// Ends with the stat or, if the server hangs, with the process.
	go func() { _, err := os.Stat(filepath.Join(m.Point, "README")); answer <- err }()
	select {
	case err := <-answer:
		return err
	case <-time.After(mountPatience):
		return fmt.Errorf("no answer within %v", mountPatience)
	}
}
