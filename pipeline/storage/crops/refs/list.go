package refs

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
)

// atOnce is how many files are looked up at a time.
const atOnce = 32

// List implements storage.Storage. It only looks up files that hold objects which match accepts.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	names, err := s.names(ctx, match)
	if err != nil {
		return err
	}
	for _, name := range names {
		a, err := s.load(ctx, name, s.settled)
		if err != nil {
			return err
		}
		chosen := a.choose(match)
		if err := a.lookAt(ctx, s.under, chosen, s.settled); err != nil {
			return err
		}
		for _, i := range chosen {
			f, _ := a.file(a.table.Place(i).File)
			x, err := a.made(i, f)
			if err != nil {
				return err
			}
			if err := visit(x.object); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns the files that describe hierarchies, and whose directories match accepts.
func (s *Storage) names(ctx context.Context, match func(path string, isDir bool) bool) (list []string, err error) {
	if !match(".", true) {
		return nil, nil
	}
	if one := s.config.One; one != "" {
		for at := one; strings.Contains(at, "/"); {
			if at = at[:strings.LastIndexByte(at, '/')]; !match(at, true) {
				return nil, nil
			}
		}
		if match(one, true) {
			list = append(list, one)
		}
		return list, nil
	}
	err = s.under.List(ctx, func(path string, isDir bool) bool {
		if isDir {
			return path == "." || s.config.Match(path, true) && match(path, true)
		}
		return Is(path) && s.config.Match(path, false) && match(path, true)
	}, func(o storage.Object) error {
		list = append(list, o.Path)
		return nil
	})
	slices.Sort(list)
	return list, err
}

// choose returns the keys that match accepts, in order.
func (a *archive) choose(match func(path string, isDir bool) bool) (chosen []int) {
	var above string // the last directory that was asked about and accepted
	for i := 0; i < a.table.Len(); {
		key := a.table.Key(i)
		if next := a.entered(&above, key, match); next != "" {
			i = a.table.Search(next)
			continue
		}
		if name := key[strings.LastIndexByte(key, '/')+1:]; name[0] != '.' && match(a.listed.Path+"/"+key, false) {
			chosen = append(chosen, i)
		}
		i++
	}
	return chosen
}

// entered asks about the directories of a key that are not also directories of the key before,
// which are in above. If one is not to be entered, it returns the first key that may follow it.
func (a *archive) entered(above *string, key string, match func(path string, isDir bool) bool) (next string) {
	for at := 0; ; {
		n := strings.IndexByte(key[at:], '/')
		if n < 0 {
			*above = key[:max(at-1, 0)]
			return ""
		}
		dir := key[:at+n]
		known := *above == dir || strings.HasPrefix(*above, dir+"/")
		if !known && (dir[at] == '.' || !match(a.listed.Path+"/"+dir, true)) {
			*above = dir[:max(at-1, 0)]
			return dir + "0" // sorts right after all that begin with dir and a slash
		}
		at += n + 1
	}
}

// lookAt looks up the files of keys, and reads the local headers of members of a zip file.
func (a *archive) lookAt(ctx context.Context, under storage.Storage, chosen []int, look look) error {
	first := map[int]int{} // first key, by file
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, i := range chosen {
		p := a.table.Place(i)
		if p.Kind == table.Inline {
			continue
		}
		if _, seen := first[p.File]; !seen {
			first[p.File] = i
		}
		if p.Kind == table.Member || p.Kind == table.Compressed {
			if inner.Err() != nil {
				break
			}
			group.Go(func() error { return a.resolveMember(inner, under, i) })
		}
	}
	for n, i := range first {
		if inner.Err() != nil {
			break
		}
		group.Go(func() error {
			o, err := look(inner, a.paths[n])
			if err != nil {
				return a.lacks(i, err)
			}
			a.seen(n, o)
			return nil
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}
