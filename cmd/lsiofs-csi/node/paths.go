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
