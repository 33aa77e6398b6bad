package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

// UnmountOptions select what is unmounted. Lazy detaches the mount and lets its readers finish.
type UnmountOptions struct {
	Point string
	Lazy  bool
}

// Unmount unmounts a mount of lsiofs. If it is busy, the error names the processes that use it.
// Unless it is lazy, it also waits until the server has released the dataset, because a script may
// unmount the dataset's disk next.
func Unmount(ctx context.Context, o UnmountOptions, u *terminal.UI) error {
	point, err := fs.ResolvePoint(o.Point)
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	mounts, err := fs.Mounts()
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	m, ok := fs.TopMount(mounts, point)
	switch uid := os.Geteuid(); {
	case !ok:
		return exit.Errorf(exit.Mount, "%s is not a mount point: name the directory that lsiofs mount was given (findmnt -t %s lists them)", o.Point, fs.FileSystemType)
	case m.Type != fs.FileSystemType:
		return exit.Errorf(exit.Mount, "%s is a mount of type %s, not one of lsiofs: name the directory that lsiofs mount was given (findmnt -t %s lists them)", o.Point, m.Type, fs.FileSystemType)
	case m.User >= 0 && uid != 0 && uid != m.User:
		return exit.Errorf(exit.Mount, "%s was mounted by user %s: unmount it as that user, or as root (sudo lsiofs umount %s)",
			o.Point, m.Owner(), terminal.Quote(point))
	}
	var server *fs.Server
	if !o.Lazy {
		server = fs.FindServer(m)
	}
	var lost []string
	if server != nil {
		defer server.Close()
		lost = writtenFiles(m, server)
	}
	if err := unmountSoon(ctx, point, o.Lazy); err != nil {
		if !errors.Is(err, unix.EBUSY) {
			return exit.Errorf(exit.Mount, "unmount %s: %w", o.Point, err)
		}
		return exit.Errorf(exit.Mount, "%s is busy%s, or detach it with lsiofs umount --lazy %s",
			o.Point, busyText(holders("/proc", point, os.Getpid(), os.ReadDir), server), terminal.Quote(o.Point))
	}
	if len(lost) > 0 {
		u.Warn(fmt.Sprintf("files that were written into %s are lost: %s; a mount keeps only its checkpoint", o.Point, strings.Join(lost, ", ")))
	}
	if server != nil {
		if err := letGo(ctx, m, server, o.Point, u); err != nil {
			return exit.With(exit.Mount, err)
		}
	}
	if u.JSON {
		return u.Emit(map[string]string{"unmounted": point})
	}
	u.Notef("unmounted %s", o.Point)
	return nil
}

// How often, and for how long, a busy mount is tried again: programs such as lsiofs top and
// exporters of metrics open a file of it for some milliseconds each second.
const (
	busyTries = 10
	busyPause = 20 * time.Millisecond
)

// unmountSoon is UnmountPoint for a mount that may be busy for a moment.
func unmountSoon(ctx context.Context, point string, lazy bool) error {
	for try := 1; ; try++ {
		err := UnmountPoint(ctx, point, lazy)
		if !errors.Is(err, unix.EBUSY) || try == busyTries {
			return err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return err
		}
	}
}

// busyText returns what keeps a mount busy, and what to do about it. A program whose request a
// stopped server has not answered uses the mount, but has nothing of it open: it does not show.
func busyText(held []holder, server *fs.Server) string {
	if server == nil || !server.Stopped() {
		return holdersText(held)
	}
	stopped := fmt.Sprintf("its server, process %d, is stopped (SIGSTOP, Ctrl-Z): kill -CONT %d resumes it", server.PID, server.PID)
	if len(held) == 0 {
		return ": a program waits for its answer, or a program that is not visible from here uses it, and " + stopped
	}
	return holdersText(held) + "; " + stopped
}

// statusTime bounds the wait for a mount's status before it is unmounted.
const statusTime = 2 * time.Second

// writtenFiles returns the names of files that programs have written into a mount, apart from its
// checkpoint.
func writtenFiles(m fs.MountEntry, server *fs.Server) []string {
	if server.Stopped() {
		return nil
	}
	if s := m.Status(statusTime); s != nil {
		return s.ScratchNames
	}
	return nil
}

// Limits of the wait for a server's end. It takes milliseconds, or some seconds if storage does not
// answer or the machine is busy. After endSoon the reason is determined, after endSaid it is
// printed.
const (
	endSoon  = time.Second
	endSaid  = 3 * time.Second
	endBound = time.Minute
)

// letGo waits until the server of an unmounted mount has ended.
func letGo(ctx context.Context, m fs.MountEntry, s *fs.Server, name string, u *terminal.UI) error {
	if s.PID == os.Getpid() || endsWithin(ctx, s, endSoon) {
		return nil
	}
	ends := false
	if !s.Stopped() {
		if elsewhere := m.Elsewhere(); elsewhere != "" {
			u.Warn(fmt.Sprintf("the file system of %s is still mounted %s: its server, process %d, keeps the dataset open until it is unmounted there too", name, elsewhere, s.PID))
			return nil
		}
		if ends = endsWithin(ctx, s, endSaid-endSoon); !ends && ctx.Err() == nil {
			u.Notef("waiting for the server of %s, process %d, to close the dataset", name, s.PID)
			ends = endsWithin(ctx, s, endBound-endSaid)
		}
	}
	switch {
	case ends:
		return nil
	case s.Stopped():
		return fmt.Errorf("unmounted %s, but its server, process %d, is stopped (SIGSTOP, Ctrl-Z) and keeps the dataset open: kill -CONT %d resumes it, and then it ends", name, s.PID, s.PID)
	case ctx.Err() != nil:
		return fmt.Errorf("unmounted %s, but its server, process %d, may still have the dataset open: %w", name, s.PID, ctx.Err())
	}
	return fmt.Errorf("unmounted %s, but its server, process %d, did not end within %v and may still have the dataset open: its log says what it is waiting for; kill -KILL %d ends it",
		name, s.PID, endBound, s.PID)
}

func endsWithin(ctx context.Context, s *fs.Server, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.Ended(ctx)
}

// UnmountPoint unmounts through the kernel or, if that is not permitted, through fusermount3, which
// may unmount its user's own mounts. Either way it returns EBUSY for a busy mount.
func UnmountPoint(ctx context.Context, point string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	args := []string{"-u"}
	if lazy {
		flags |= unix.MNT_DETACH
		args = append(args, "-z")
	}
	err := unix.Unmount(point, flags)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	output, err := exec.CommandContext(ctx, "fusermount3", append(args, "--", point)...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("fusermount3 is missing: install the package fuse3, or unmount as root")
	case strings.Contains(text, "busy"): // the text is its only sign
		return unix.EBUSY
	}
	return errors.New(text)
}

// holder is a process that uses a mount.
type holder struct {
	PID  int
	Name string
	Uses string // one of the paths that it uses
}

// maxHolders bounds how many processes are looked for and printed.
const maxHolders = 8

// mapsPatience is how long it may take to examine the mappings of processes. The kernel makes that
// wait for a process that hangs, for example while it waits for a page of a file system that does
// not answer.
const mapsPatience = 3 * time.Second

// holders searches a proc file system for processes that have a file or directory below point open
// or mapped. Processes of other users show nothing. The process but is left out (it is this one,
// with what its parent left open to it). Mappings that can't be read within mapsPatience are
// skipped. list is os.ReadDir.
func holders(proc, point string, but int, list func(dir string) ([]os.DirEntry, error)) []holder {
	dirs, err := list(proc)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), mapsPatience)
	defer cancel()
	var found []holder
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == but {
			continue
		}
		dir := filepath.Join(proc, d.Name())
		linksOf := func(sub string) (links []string) {
			entries, _ := list(filepath.Join(dir, sub))
			for _, e := range entries {
				links = append(links, filepath.Join(dir, sub, e.Name()))
			}
			return links
		}
		uses := targetBelow(point, append(linksOf("fd"), filepath.Join(dir, "cwd"), filepath.Join(dir, "root")))
		if uses == "" && ctx.Err() == nil {
			mapped := make(chan string, 1)
			go func() { mapped <- targetBelow(point, linksOf("map_files")) }() // ends with this process at the latest
			select {
			case uses = <-mapped:
			case <-ctx.Done():
			}
		}
		if uses != "" {
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // "" for a process that is gone
			found = append(found, holder{pid, strings.TrimSpace(string(name)), uses})
		}
		if len(found) == maxHolders {
			break
		}
	}
	return found
}

// inside reports whether path is dir or below it. Both are absolute and clean.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// targetBelow returns the target of the first link that leads to point or below it, or "".
func targetBelow(point string, links []string) string {
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && inside(target, point) {
			return target
		}
	}
	return ""
}

func holdersText(held []holder) string {
	if len(held) == 0 {
		return ", used by processes that are not visible from here: end them"
	}
	parts := make([]string, len(held))
	for i, h := range held {
		parts[i] = fmt.Sprintf("%s (process %d) uses %s", h.Name, h.PID, h.Uses)
	}
	if len(held) == maxHolders {
		parts = append(parts, "and perhaps more")
	}
	return ": " + strings.Join(parts, ", ") + "; close these"
}
