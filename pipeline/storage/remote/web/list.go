package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
)

// maxListBytes bounds the size of a list of files.
const maxListBytes = 256 << 20

// List describes each named file, which is a page of its own, and fails if one does not exist. It
// returns remote.ErrNoListing if no files are named.
func (s *Source) List(ctx context.Context, page string, visit func(remote.Listed) error) (next []string, err error) {
	i := 0
	if len(s.names) == 0 {
		return nil, remote.ErrNoListing
	}
	if page != "" {
		if i, err = strconv.Atoi(page); err != nil || i < 1 || i >= len(s.names) {
			return nil, remote.Refuse("there is no page of such a name")
		}
	}
	name := s.names[i]
	l, err := s.Head(ctx, name.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, remote.Refuse("%s: %w: it was named: restore it, or change the range or the list", name.Path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name.Path, err)
	}
	if name.SizeBytes >= 0 && name.SizeBytes != l.SizeBytes {
		return nil, remote.Refuse("%s: it has %d bytes, and the list says %d: make the list anew", name.Path, l.SizeBytes, name.SizeBytes)
	}
	if err := visit(l); err != nil || page != "" {
		return nil, err
	}
	for i := range len(s.names) - 1 {
		next = append(next, strconv.Itoa(i+1))
	}
	return next, nil
}

// readList fetches the list of files that the target is.
func (s *Source) readList(ctx context.Context) ([]target.Name, error) {
	path := s.names[0].Path
	fail := func(err error) ([]target.Name, error) {
		return nil, fmt.Errorf("list of files %s: %w", s.urlFor(path), err)
	}
	resp, err := s.ask(ctx, http.MethodGet, path, "", 0, -1)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := s.answer(path, resp, "")
	switch {
	case a.Status != http.StatusOK:
		return fail(failure(a))
	case a.Page != "":
		return fail(remote.Refuse("%s", a.Page))
	case a.LengthBytes < 0 && len(resp.TransferEncoding) == 0:
		return fail(remote.Refuse("the server does not say how long it is (Content-Length), so that one which is cut short would look whole: have it say so, or name the files by a range such as {000..146}"))
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
