package fs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

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
