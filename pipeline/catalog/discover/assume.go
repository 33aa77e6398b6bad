package discover

import (
	"context"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// assume opens the first and the last of the files that two formats claim by their names. If both
// are what their names imply, those between them are assumed to be, too, until they are read. Files
// that sort together are alike, so a directory that contains both formats is usually detected here.
// Answers of an earlier run count as well. In a remote service each file that is not opened saves a
// request.
func (f *finder) assume(ctx context.Context, files []file, wanted []int) error {
	var fresh []int
	for _, i := range wanted {
		if !contested(&files[i]) {
			continue
		}
		switch x, known := f.known(files[i].Object); {
		case !known:
			fresh = append(fresh, i)
		case x != files[i].name.Format:
			return nil
		}
	}
	if len(fresh) <= 2 {
		return nil
	}
	opened := []int{fresh[0], fresh[len(fresh)-1]}
	shown := make([]string, len(files))
	if err := f.look(ctx, files, opened, shown); err != nil {
		return err
	}
	if shown[opened[0]] != "" || shown[opened[1]] != "" {
		return nil
	}
	for _, i := range fresh {
		files[i].settled = true
		files[i].Assumed = i != opened[0] && i != opened[1]
	}
	f.assumed = true
	return nil
}

// IsAnothers reports whether a file whose name has an extension of one format has the content of
// another format. It reads the first format.SniffBytes, and at most some MiB in total, parts of
// them more than once. Errors are those of reading.
func IsAnothers(o storage.Object, raw io.ReaderAt) (bool, error) {
	x, err := claimant(o, &headReader{raw: raw, sizeBytes: o.SizeBytes})
	return x != nil && err == nil, err
}

// claimant returns the format that claims a file by its content, although the name has another
// format's extension; nil for none. If the error is not nil, the format is meaningless.
func claimant(o storage.Object, raw *headReader) (format.Format, error) {
	head := make([]byte, min(o.SizeBytes, format.SniffBytes))
	n, err := raw.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	list, err := formats.Claiming(head[:n])
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if x.Takes(o.Path) {
			if is, err := x.SniffRaw(raw, o.SizeBytes); is || err != nil {
				return x, err
			}
		}
	}
	return nil, nil
}
