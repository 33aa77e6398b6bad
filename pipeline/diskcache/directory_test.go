package diskcache

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignDirectoriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(dir string) error
		reason string // "" if it is accepted
		root   bool
	}{
		"nothing":                {make: func(string) error { return nil }},
		"empty":                  {make: func(d string) error { return os.Mkdir(d, 0o700) }},
		"only for us, read-only": {make: func(d string) error { return os.Mkdir(d, 0o500) }},
		"for a group":            {func(d string) error { return os.Mkdir(d, 0o750) }, "others may use it (mode 0750)", false},
		"for all":                {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o777)) }, "others may use it (mode 0777)", false},
		"a stranger's":           {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chown(d, 12345, 12345)) }, "it belongs to user 12345", true},
		"a link":                 {func(d string) error { return errors.Join(os.Mkdir(d+"x", 0o700), os.Symlink(d+"x", d)) }, "links are not followed", false},
		"a file":                 {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "not a directory", false},
		"with files": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/thesis.tex", nil, 0o600))
		}, `not empty (it has "thesis.tex")`, false},
		"with a store but no tag": {func(d string) error { return os.MkdirAll(d+"/v1", 0o700) }, `not empty (it has "v1")`, false},
		"another program's cache": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/"+tagName, []byte("Signature: 8a477f597d28d172789f06886806bc55\n# pip\n"), 0o600))
		}, "another program's cache", false},
		"with a tag that is empty": {make: func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/"+tagName, nil, 0o600)) }},
		"with a store for all": {func(d string) error {
			return errors.Join(os.MkdirAll(d+"/v1", 0o700), os.Chmod(d+"/v1", 0o777), os.WriteFile(d+"/"+tagName, []byte(tagText), 0o600))
		}, "v1: others may use it", false},
		"with a store that is link": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.Symlink("/tmp", d+"/v1"), os.WriteFile(d+"/"+tagName, []byte(tagText), 0o600))
		}, "v1:", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root {
				privileged(t, "giving files away")
			}
			dir := filepath.Join(t.TempDir(), "below", "cache")
			require.NoError(t, os.Mkdir(filepath.Dir(dir), 0o755))
			require.NoError(t, c.make(dir))
			if name == "only for us, read-only" && os.Geteuid() != 0 {
				c.reason = "permission denied"
			}
			d, err := openDirectory(kernel{}, dir, slog.New(slog.DiscardHandler))
			if c.reason != "" {
				require.ErrorContains(t, err, dir)
				require.ErrorContains(t, err, c.reason)
				return
			}
			require.NoError(t, err)
			require.True(t, d.punches)
			d.close()
			tag, err := os.ReadFile(filepath.Join(dir, tagName))
			require.NoError(t, err)
			require.Equal(t, tagText, string(tag))
			info, err := os.Stat(filepath.Join(dir, storeName))
			require.NoError(t, err)
			require.Equal(t, os.ModeDir|0o700, info.Mode())
			names, err := os.ReadDir(filepath.Join(dir, storeName))
			require.NoError(t, err)
			require.Empty(t, names, "nothing is left of what was tried")
		})
	}
}

func TestConfigReportsAllProblemsAtOnce(t *testing.T) {
	err := (&Config{ShareBytes: -1, ReserveBytes: -1, MaxReadBytes: 5000, GapBytes: -1}).Validate()
	for _, what := range []string{"dir", "below", "engine", "identify", "bound", "share", "reserve", "buffer", "max_read", "gap", "max_files"} {
		require.ErrorContains(t, err, what)
	}
}
