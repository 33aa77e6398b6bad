package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

const (
	// headsAtOnce is how many files are asked for at a time: at 25 ms each, 147 shards
	// take 0.1 s, 10⁵ of them 80 s.
	headsAtOnce = 32
	// maxListBytes bounds a list of files.
	maxListBytes = 256 << 20
)

// List asks for each file that was named, and fails where one is not there. It gives
// remote.ErrNoListing where none was.
func (s *Source) List(ctx context.Context, visit func(remote.Listed) error) error {
	if len(s.names) == 0 {
		return remote.ErrNoListing
	}
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(headsAtOnce)
	var visiting sync.Mutex
	for _, name := range s.names {
		if all.Err() != nil {
			break
		}
		group.Go(func() error {
			l, err := s.Head(all, name.Path)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: it was named: restore it, or change the range or the list", err)
			}
			if err != nil {
				return err
			}
			if name.SizeBytes >= 0 && name.SizeBytes != l.SizeBytes {
				return remote.Refuse("%s: it has %d bytes, and the list says %d: make the list anew", s.urlFor(name.Path), l.SizeBytes, name.SizeBytes)
			}
			visiting.Lock()
			defer visiting.Unlock()
			if err := all.Err(); err != nil { // another one has failed
				return err
			}
			return visit(l)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// readList fetches the list of files that the target is.
func (s *Source) readList(ctx context.Context) ([]target.Name, error) {
	path := s.names[0].Path
	fail := func(err error) ([]target.Name, error) {
		return nil, fmt.Errorf("list of files %s: %w", s.urlFor(path), err)
	}
	a, _, err := s.get(ctx, path, "", 0, -1)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = a.Body.Close() }()
	switch {
	case a.Status != http.StatusOK:
		return fail(&remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter})
	case a.Encoding != "":
		return fail(remote.Refuse("the server sends it with Content-Encoding %q, though asked for the bytes as they are", a.Encoding))
	}
	text, err := io.ReadAll(io.LimitReader(a.Body, maxListBytes+1))
	if err != nil {
		return fail(remote.Clean(err))
	}
	if len(text) > maxListBytes {
		return fail(remote.Refuse("it is larger than %d MiB", maxListBytes>>20))
	}
	var names []target.Name
	if strings.HasSuffix(path, ".json") {
		names, err = s.web.ParseShards(text)
	} else {
		names, err = s.web.ParseText(string(text))
	}
	if err != nil {
		return fail(&remote.Refusal{Err: err})
	}
	return names, nil
}
