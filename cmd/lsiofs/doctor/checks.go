package doctor

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/tune"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// examine judges a machine. It is a pure function.
func examine(m machine) []Finding {
	found := []Finding{
		checkKernel(m.release), checkFuse(m), checkFusermount(m), checkAllowOther(m),
		checkRing(m), checkFuseRings(m), checkFiles(m), checkMemlock(m), checkMemory(m), checkIndexDir(m),
	}
	return append(append(found, checkProfiles(m.profiles)...), checkMounts(m.mounts)...)
}

// Kernel versions that features need (measured; README, Limits).
var (
	kernelNeeded   = [2]int{5, 14} // MADV_POPULATE_READ
	kernelRing     = [2]int{6, 1}  // DEFER_TASKRUN, statx DIOALIGN
	kernelMappings = [2]int{6, 6}  // shared mappings of direct_io files
)

func checkKernel(release string) Finding {
	f := Finding{Check: "kernel", Level: levelOK, Detail: release}
	var v [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &v[0], &v[1]); err != nil {
		f.Level, f.Detail = levelWarn, fmt.Sprintf("can't parse version %q", release)
		return f
	}
	older := func(than [2]int) bool { return v[0] < than[0] || v[0] == than[0] && v[1] < than[1] }
	var lost []string
	if older(kernelRing) {
		lost = append(lost, "io_uring is slower and the alignment of direct reads is guessed (below 6.1)")
	}
	if older(kernelMappings) {
		lost = append(lost, "programs can't map worker files shared, which numpy.memmap does by default (below 6.6)")
	}
	switch {
	case older(kernelNeeded):
		f.Level, f.Do = levelFail, "use kernel 5.14 or later, better 6.6"
	case len(lost) > 0:
		f.Level, f.Do = levelWarn, "use kernel 6.6 or later"
		f.Detail += ": " + strings.Join(lost, "; ")
	}
	return f
}

func checkFuse(m machine) Finding {
	f := Finding{Check: "FUSE", Level: levelOK, Detail: fmt.Sprintf("/dev/fuse can be opened (mode %04o)", m.fuseMode)}
	switch {
	case m.fuse == nil && m.root && !m.mountCap && m.fusermount == "":
		f.Level, f.Detail = levelFail, "/dev/fuse can be opened, but root lacks the right to mount here (no CAP_SYS_ADMIN)"
		f.Do = "in a container: --cap-add SYS_ADMIN"
	case m.fuse == nil:
	case errors.Is(m.fuse, iofs.ErrNotExist):
		f.Level, f.Detail = levelFail, "/dev/fuse does not exist"
		f.Do = "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
	case errors.Is(m.fuse, iofs.ErrPermission) && !m.root:
		f.Level, f.Detail = levelFail, fmt.Sprintf("this user may not open /dev/fuse (mode %04o)", m.fuseMode)
		f.Do = "as root: chmod 0666 /dev/fuse; or run lsiofs as root"
	default:
		f.Level, f.Detail = levelFail, m.fuse.Error()
		f.Do = "in a container: --device /dev/fuse --cap-add SYS_ADMIN"
	}
	return f
}

func checkFusermount(m machine) Finding {
	f := Finding{Check: "fusermount3", Level: levelOK, Detail: m.fusermount}
	switch {
	case m.fusermount != "":
	case m.mountCap:
		f.Detail = "not installed; root does not need it"
	default:
		f.Level, f.Detail, f.Do = levelFail, "not installed; mounting as a user needs it", "apt-get install fuse3 (or your distribution's package)"
	}
	return f
}

func checkAllowOther(m machine) Finding {
	f := Finding{Check: "--allow-other", Level: levelOK}
	allowed := false
	for line := range strings.Lines(m.fuseConf) {
		allowed = allowed || strings.TrimSpace(line) == "user_allow_other"
	}
	switch {
	case m.mountCap:
		f.Detail = "works as root"
	case allowed:
		f.Detail = "permitted by /etc/fuse.conf"
	default:
		f.Level, f.Detail, f.Do = levelWarn, "not permitted to users", "only needed if other users must read your mounts: add the line user_allow_other to /etc/fuse.conf"
	}
	return f
}

func checkRing(m machine) Finding {
	if m.ring == nil {
		return Finding{Check: "io_uring", Level: levelOK, Detail: "a test read through a ring worked"}
	}
	return Finding{Check: "io_uring", Level: levelWarn, Detail: m.ring.Error() + "; reads go through pread instead",
		Do: "allow io_uring (in containers: a seccomp profile that permits it; sysctl kernel.io_uring_disabled=0), or leave it: small reads are slower, large ones about the same"}
}

// checkFuseRings reports whether mounts may take their requests through io_uring. It is not a fault
// if they may not.
func checkFuseRings(m machine) Finding {
	f := Finding{Check: "FUSE over io_uring", Level: levelOK, Detail: "available: mounts with --fuse-io-uring use it"}
	if m.fuseRings != nil {
		f.Detail = "not available, and not needed: " + m.fuseRings.Error()
	}
	return f
}

// fewFiles is less than a mount with a few hundred shards and readers opens.
const fewFiles = 4096

func checkFiles(m machine) Finding {
	f := Finding{Check: "open files", Level: levelOK, Detail: fmt.Sprintf("limit %s (hard %s)", limitText(m.nofile.Cur), limitText(m.nofile.Max))}
	// The Go runtime raises the soft limit to the hard one.
	if m.nofile.Max < fewFiles {
		f.Level, f.Do = levelWarn, fmt.Sprintf("ulimit -n %d or more: many simultaneous shards and readers need more", fewFiles)
	}
	return f
}

// littleMemlock is less than registered buffers take. Users other than root have 8 MiB.
const littleMemlock = 64 << 20

func checkMemlock(m machine) Finding {
	f := Finding{Check: "locked memory", Level: levelOK, Detail: "limit " + limitText(m.memlock.Cur)}
	if m.memlock.Cur != unix.RLIM_INFINITY {
		f.Detail = "limit " + terminal.Bytes(int64(m.memlock.Cur))
	}
	if m.memlock.Cur < littleMemlock && !m.root {
		f.Level, f.Do = levelWarn, "ulimit -l unlimited, or leave it: reads through io_uring take a little more CPU"
	}
	return f
}

// littleMemory is the memory above which a mount with the default of --memory has room for its
// tables and some page cache.
const littleMemory = 256 << 20

func checkMemory(m machine) Finding {
	f := Finding{Check: "memory", Level: levelOK, Detail: terminal.Bytes(m.allowed)}
	if m.allowed < m.memory {
		f.Detail += fmt.Sprintf(" of %s, limited by a control group", terminal.Bytes(m.memory))
	}
	f.Detail += ": --memory is " + terminal.Size(uint64(spec.MemoryWithin(m.allowed))) + " by default"
	if m.allowed < littleMemory {
		f.Level, f.Do = levelWarn, "raise the control group's memory.max (docker run --memory, or a pod's resources.limits.memory): a mount takes --memory plus up to 150 MiB"
	}
	return f
}

func checkIndexDir(m machine) Finding {
	if m.indexDirErr == nil {
		return Finding{Check: "index directory", Level: levelOK, Detail: m.indexDir + " is writable"}
	}
	return Finding{Check: "index directory", Level: levelFail, Detail: m.indexDirErr.Error(),
		Do: "choose another directory with --index-dir, or set XDG_CACHE_HOME"}
}

func checkProfiles(profiles []filesystem.ListedProfile) []Finding {
	const check = "storage profiles"
	if len(profiles) == 0 {
		return []Finding{{Check: check, Level: levelOK, Detail: "none: mounts use defaults for the kind of storage (lsiofs tune PATH measures it)"}}
	}
	var found []Finding
	for _, l := range profiles {
		f := Finding{Check: check, Level: levelOK, Detail: tune.PlaceText(l.Stored.Place) + ": " + l.Stored.Profile.String()}
		if l.Problem != nil {
			f.Level, f.Detail = levelWarn, fmt.Sprintf("%s is ignored: %v", l.File, l.Problem)
			f.Do = "rm " + terminal.Quote(l.File) + ", then measure again with lsiofs tune"
		}
		found = append(found, f)
	}
	return found
}

func checkMounts(mounts []leftMount) []Finding {
	if len(mounts) == 0 {
		return []Finding{{Check: "mounts", Level: levelOK, Detail: "no lsiofs mounts"}}
	}
	var found []Finding
	for _, l := range mounts {
		f := Finding{Check: "mounts", Level: levelOK, Detail: l.point + " answers"}
		switch {
		case errors.Is(l.err, unix.ENOTCONN):
			f.Level, f.Detail = levelWarn, l.point+" is a dead mount: its server is gone"
			f.Do = "lsiofs umount --lazy " + terminal.Quote(l.point) + " (mounting there again also clears it)"
		case l.err != nil:
			f.Level, f.Detail = levelWarn, fmt.Sprintf("%s: %v", l.point, l.err)
			f.Do = "check its log; to remove it: lsiofs umount --lazy " + terminal.Quote(l.point)
		}
		found = append(found, f)
	}
	return found
}

func limitText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return terminal.Count(n)
}
