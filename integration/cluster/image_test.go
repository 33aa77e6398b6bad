package cluster

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
)

// libraries are the Python packages that the examples' trainers import.
var libraries = []string{"torch", "numpy", "typing_extensions.py", "astunparse", "six.py", "yaml"}

// unused is what is left out of a layer because nothing there runs or imports it.
var unused = regexp.MustCompile(`/(tests?|include|share|__pycache__|torch/bin/(test_\w+|\w+Test|tutorial_\w+))$`)

// base makes the layer that replaces images from registries: this machine's Python with torch, and
// a shell.
func (c *cluster) base(path string) {
	t := c.t
	interpreter, err := filepath.EvalSymlinks("/usr/bin/python3")
	require.NoError(t, err)
	out, err := exec.Command(interpreter, "-c", "import sysconfig, torch; print(sysconfig.get_path('stdlib')); print(torch.__file__)").Output()
	require.NoError(t, err, "python3 with torch, which integration/check installs")
	lines := strings.Fields(string(out))
	packages := filepath.Dir(filepath.Dir(lines[1]))
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	l := &layer{Writer: tar.NewWriter(f), has: map[string]bool{}}
	for _, p := range []string{"/bin", "/lib", "/lib64", "/sbin"} { // on most machines links into /usr
		require.NoError(t, l.add(p, false))
	}
	for _, p := range []string{"/usr/bin/python3", "/bin/sh", "/bin/mkdir", "/bin/cat", "/bin/ls", "/usr/bin/md5sum"} {
		require.NoError(t, l.add(p, true))
	}
	require.NoError(t, l.add(lines[0], true))
	for _, name := range libraries {
		if err := l.add(filepath.Join(packages, name), true); !errors.Is(err, fs.ErrNotExist) { // not all versions have all of them
			require.NoError(t, err)
		}
	}
	// The libraries that these are linked with.
	for len(l.programs) > 0 {
		programs := l.programs
		l.programs = nil
		out, _ := exec.Command("ldd", programs...).Output() // it fails for static programs
		for _, m := range regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+)`).FindAllStringSubmatch(string(out), -1) {
			require.NoError(t, l.add(m[1], true))
		}
	}
	require.NoError(t, l.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}))
	require.NoError(t, l.text("etc/passwd", "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n"))
	require.NoError(t, l.Close())
}

// layer is a layer that is being written.
type layer struct {
	*tar.Writer
	has      map[string]bool
	programs []string // programs and libraries whose own libraries have not been looked up yet
}

func (l *layer) text(name, content string) error {
	if err := l.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := io.WriteString(l, content)
	return err
}

// add adds a file, or a directory, whose contents are only added if follow is set, or a symbolic
// link and its target.
func (l *layer) add(path string, follow bool) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	path = filepath.Join(dir, filepath.Base(path))
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) && !follow {
		return nil
	}
	if err != nil || l.has[path] || unused.MatchString(path) {
		return err
	}
	l.has[path] = true
	h := &tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: int64(info.Mode().Perm())}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		if err = l.WriteHeader(h); err != nil || !follow {
			return err
		}
		if !filepath.IsAbs(h.Linkname) {
			h.Linkname = filepath.Join(dir, h.Linkname)
		}
		if err = l.add(h.Linkname, true); errors.Is(err, fs.ErrNotExist) {
			return nil // a link to documentation or other things that are not installed
		}
		return err
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if err := l.WriteHeader(h); err != nil || !follow {
			return err
		}
		list, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := l.add(filepath.Join(path, e.Name()), true); err != nil {
				return err
			}
		}
		return nil
	case info.Mode().IsRegular():
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if slices.Equal(b[:min(4, len(b))], []byte("\x7fELF")) {
			l.programs = append(l.programs, path)
		}
		return l.file(h, b)
	}
	return nil
}

func (l *layer) file(h *tar.Header, content []byte) error {
	h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
	if err := l.WriteHeader(h); err != nil {
		return err
	}
	_, err := l.Write(content)
	return err
}
