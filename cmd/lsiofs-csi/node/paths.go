package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

// resolve checks paths once more where their links lead. Of a path that is not there, the longest part
// that is there is resolved: mount may make the rest.
func resolve(paths []string, p volume.Policy) error {
	var problems []error
	for _, path := range paths {
		if _, _, err := resolved(path, p); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// resolved returns the longest part of a path that is there, without links, and the rest of the path. It
// is an error if the policy does not allow the two together.
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

// makeDirectories makes the directories that are not there. Mount would make them, too, but it would follow
// links that somebody makes after resolve has looked.
func makeDirectories(paths []string, p volume.Policy) error {
	var problems []error
	for _, path := range paths {
		there, rest, err := resolved(path, p)
		if err == nil {
			err = makeBelow(there, rest)
		}
		if err != nil && !errors.Is(err, unix.EROFS) { // then mount has its own words, or does without
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// directoryMode is that of run directories, which other users may look at. An index is a file of mode 0600
// in any directory.
const directoryMode = 0o755

// makeBelow makes the directories of a relative path below a directory that is there, and follows no link.
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
