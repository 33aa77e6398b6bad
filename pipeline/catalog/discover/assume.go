package discover

import (
	"context"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// assume opens the first and the last of the files that two formats claim by their names.
// If both are what their names say, so are those between them, as far as is known yet. Files
// that sort together are alike, so a directory that holds both formats mostly shows here.
// Answers of an earlier run count as well. At a service each file that is not opened saves
// a request.
func (f *finder) assume(ctx context.Context, unknown []candidate) error {
	var fresh []int
	for i, c := range unknown {
		named := f.byExtension(c.inner)
		if named == nil {
			continue
		}
		switch x, known := f.known(c.Object); {
		case !known:
			fresh = append(fresh, i)
		case x != nil && x.Name() != named.Name():
			return nil
		}
	}
	if len(fresh) <= 2 {
		return nil
	}
	last := len(fresh) - 1
	list, err := f.judge(ctx, []candidate{unknown[fresh[0]], unknown[fresh[last]]})
	if err != nil {
		return err
	}
	opened := [2]*candidate{&unknown[fresh[0]], &unknown[fresh[last]]}
	if list[0] != nil || list[1] != nil {
		return nil
	}
	for _, i := range fresh {
		unknown[i].settled, unknown[i].Assumed = true, true
	}
	for _, c := range opened {
		c.Assumed = false
	}
	f.assumed = true
	return nil
}

// IsAnothers says whether the content of a file whose name has an extension of one format
// is another format's. It reads the first unpack.SniffBytes, and at most some MiB in all, of
// which parts more than once. Errors are those of reading.
func IsAnothers(o storage.Object, raw io.ReaderAt) (bool, error) {
	x, err := claimant(formats.All(), o, raw)
	return x != nil && err == nil, err
}

// claimant is the format that claims a file by its content, although the name has another's
// extension; nil for none. Together with an error it says nothing.
func claimant(list []unpack.Format, o storage.Object, raw io.ReaderAt) (unpack.Format, error) {
	for _, x := range list {
		if own, ok := x.(unpack.OwnCodecs); ok && own.Takes(o.Path) {
			if is, err := own.SniffRaw(raw, o.SizeBytes); is || err != nil {
				return x, err
			}
		}
	}
	return nil, nil
}
