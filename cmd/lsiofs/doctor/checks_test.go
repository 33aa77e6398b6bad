package doctor

import (
	"bytes"
	"errors"
	iofs "io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// goodMachine returns a machine where everything works, for root.
func goodMachine() machine {
	return machine{
		release: "6.18.1-generic", root: true, mountCap: true, fuseMode: 0o666, fusermount: "/usr/bin/fusermount3",
		nofile: unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, memlock: unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
		memory: 64 << 30, allowed: 64 << 30, indexDir: "/cache",
	}
}

// asUser takes away root's rights.
func asUser(m *machine) { m.root, m.mountCap = false, false }

func TestDoctorChecksMachines(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*machine)
		check  string
		level  level
		says   string
	}{
		{"a new kernel", func(*machine) {}, "kernel", levelOK, "6.18.1"},
		{"a kernel below 6.6 loses mappings", func(m *machine) { m.release = "6.1.0-30-amd64" }, "kernel", levelWarn, "numpy.memmap"},
		{"a kernel below 6.1 loses more", func(m *machine) { m.release = "5.15.0" }, "kernel", levelWarn, "io_uring"},
		{"a kernel below 5.14 is too old", func(m *machine) { m.release = "5.10.0" }, "kernel", levelFail, "5.14"},
		{"4.19 is older than 5.14", func(m *machine) { m.release = "4.19.0" }, "kernel", levelFail, "5.14"},
		{"a strange version", func(m *machine) { m.release = "hurd" }, "kernel", levelWarn, "can't parse"},
		{"no /dev/fuse", func(m *machine) { m.fuse = iofs.ErrNotExist }, "FUSE", levelFail, "--device /dev/fuse"},
		{"a /dev/fuse for root alone", func(m *machine) { asUser(m); m.fuse, m.fuseMode = iofs.ErrPermission, 0o600 }, "FUSE", levelFail, "chmod 0666"},
		{"a container that may not open it", func(m *machine) { m.fuse = unix.EPERM }, "FUSE", levelFail, "--cap-add SYS_ADMIN"},
		{"root that may not mount", func(m *machine) { m.mountCap, m.fusermount = false, "" }, "FUSE", levelFail, "CAP_SYS_ADMIN"},
		{"root needs no fusermount3", func(m *machine) { m.fusermount = "" }, "fusermount3", levelOK, "does not need it"},
		{"a user needs it", func(m *machine) { asUser(m); m.fusermount = "" }, "fusermount3", levelFail, "fuse3"},
		{"others may not look at a user's mounts", asUser, "--allow-other", levelWarn, "user_allow_other"},
		{"a comment permits nothing", func(m *machine) { asUser(m); m.fuseConf = "#user_allow_other\n" }, "--allow-other", levelWarn, "user_allow_other"},
		{"unless that is permitted", func(m *machine) { asUser(m); m.fuseConf = "# x\nuser_allow_other\n" }, "--allow-other", levelOK, "permitted"},
		{"io_uring blocked", func(m *machine) { m.ring = unix.ENOSYS }, "io_uring", levelWarn, "seccomp"},
		{"FUSE over io_uring", func(*machine) {}, "FUSE over io_uring", levelOK, "--fuse-io-uring"},
		{"FUSE over io_uring, switched off", func(m *machine) { m.fuseRings = errors.New("switched off") }, "FUSE over io_uring", levelOK, "not available, and not needed: switched off"},
		{"few files", func(m *machine) { m.nofile.Max = 1024 }, "open files", levelWarn, "ulimit -n"},
		{"little locked memory", func(m *machine) { asUser(m); m.memlock.Cur = 8 << 20 }, "locked memory", levelWarn, "ulimit -l"},
		{"little of it matters not to root", func(m *machine) { m.memlock.Cur = 8 << 20 }, "locked memory", levelOK, "8.0 MiB"},
		{"memory", func(*machine) {}, "memory", levelOK, "64 GiB: --memory is 1GiB by default"},
		{"memory of a control group", func(m *machine) { m.allowed = 512 << 20 }, "memory", levelOK, "512 MiB of 64 GiB, limited by a control group: --memory is 128MiB by default"},
		{"little memory", func(m *machine) { m.allowed = 128 << 20 }, "memory", levelWarn, "memory.max"},
		{"a cache that can't be written", func(m *machine) { m.indexDirErr = errors.New("read-only") }, "index directory", levelFail, "--index-dir"},
		{"no storage profiles", func(*machine) {}, "storage profiles", levelOK, "lsiofs tune PATH"},
		{"a storage profile", func(m *machine) {
			p := storage.DefaultProfile(storage.KindSSD)
			p.Tuned = time.Unix(1<<30, 0).UTC()
			m.profiles = []filesystem.ListedProfile{{Stored: filesystem.StoredProfile{Place: filesystem.Place{Kind: storage.KindSSD, Device: "nvme0n1p1", FileSystem: "xfs"}, Profile: p}}}
		}, "storage profiles", levelOK, "ssd nvme0n1p1 (xfs): ssd, tuned 2004-01-10: reads of up to 1.0 MiB"},
		{"a damaged storage profile", func(m *machine) {
			m.profiles = []filesystem.ListedProfile{{File: "/c/storage-1.json", Problem: errors.New("cut off")}}
		},
			"storage profiles", levelWarn, "/c/storage-1.json is ignored: cut off rm /c/storage-1.json"},
		{"no mounts", func(*machine) {}, "mounts", levelOK, "no lsiofs mounts"},
		{"a live mount", func(m *machine) { m.mounts = []leftMount{{"/mnt/a", nil}} }, "mounts", levelOK, "/mnt/a answers"},
		{"a stale mount", func(m *machine) { m.mounts = []leftMount{{"/mnt/a b", unix.ENOTCONN}} }, "mounts", levelWarn, "umount --lazy '/mnt/a b'"},
		{"a hanging mount", func(m *machine) { m.mounts = []leftMount{{"/mnt/a", errors.New("no answer")}} }, "mounts", levelWarn, "no answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := goodMachine()
			c.change(&m)
			for _, f := range examine(m) {
				if f.Check == c.check {
					require.Equal(t, c.level, f.Level, "%+v", f)
					require.Contains(t, f.Detail+" "+f.Do, c.says)
					if f.Level == levelFail {
						require.NotEmpty(t, f.Do, "a failure says what to do")
					}
					return
				}
			}
			t.Fatalf("no finding about %s", c.check)
		})
	}
}

func TestDoctorFailsOnlyForEssentialChecks(t *testing.T) {
	var out, err bytes.Buffer
	u := terminal.New(&out, &err)
	warned := goodMachine()
	warned.ring = unix.EPERM
	require.NoError(t, reportFindings(examine(warned), u))
	require.Contains(t, out.String(), "warn  io_uring")

	broken := goodMachine()
	broken.fuse = iofs.ErrNotExist
	require.Equal(t, exit.Check, exit.CodeOf(reportFindings(examine(broken), u)))
	require.Equal(t, exit.Check, exit.CodeOf(missingForMount(broken)))
	require.NoError(t, missingForMount(warned))
}
