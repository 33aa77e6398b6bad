package cache

import (
	"errors"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
)

// Use opens a cache's directory for work and closes it. If dir is "", it opens the user's default.
// If that does not exist, Use prints so and returns nil.
func Use(dir string, u *terminal.UI, log *slog.Logger, work func(*diskcache.Directory) error) error {
	path, err := pipeline.CacheDirectory(dir)
	if err != nil {
		return err
	}
	d, err := diskcache.OpenDirectory(path, log)
	if dir == "" && errors.Is(err, fs.ErrNotExist) {
		u.Notef("there is no cache yet: %s does not exist", path)
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(work(d), d.Close())
}

// Canonical returns the URL by which the cache knows what the user means: without a query, which
// may contain secrets, and without a trailing slash.
func Canonical(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return strings.TrimRight(url, "/")
}
