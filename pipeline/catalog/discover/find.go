package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config describes what to find, and where.
type Config struct {
	Target Target
	// Format is the requested format; its name may be auto.
	Format spec.Format
	// Storage lists the files below the target's root. For several arrays it must be a
	// storage.Caps.Join.
	Storage storage.Storage
	// Reads is the storage from which contents are read: Storage, or a wrapper of it.
	Reads storage.Storage
	// AssumeAlike makes Shards open only two of the files that two formats claim by their names. If
	// both are what their names imply, the others are assumed to be, too (Shard.Assumed).
	AssumeAlike bool
	// AtATime is how many files are opened concurrently to find out their format; 0 means two per
	// core.
	AtATime int
	// IndexDir is not searched for shards if it is below the root; "" for none.
	IndexDir string
	// Known returns an earlier run's answer for an unchanged file: the name of its format, "" for
	// none. It is nil if there was no earlier run.
	Known func(storage.Object) (format string, known bool)
	// Files makes Found.Selection list all files, not only the first ones.
	Files bool
	Log   *slog.Logger
}

// Shard is one file of a dataset.
type Shard struct {
	Object storage.Object
	// Codec is the codec implied by the name, or chosen by the format; nil for none. The actual
	// codec is determined by the shard's first bytes: formats.CodecOf.
	Codec format.Codec
	// Assumed means that two formats claim the file by its name, and that it was not opened. Its
	// reader must call IsAnothers, and if that returns true, find the shards again without
	// Config.AssumeAlike.
	Assumed bool
	// Beside is the file that describes the shard (format.Paired); its path is "" if there is none.
	Beside storage.Object
}

// Found is the result of Shards.
type Found struct {
	Format   spec.Format // with its name, and its defaults
	Unpacker format.Format
	// StreamExtension is the extension of streams of these shards, with the dot.
	StreamExtension string
	Shards          []Shard // in dataset order, at least one
	// Judged are files that were looked at, now or in an earlier run, and are not shards.
	Judged []storage.Object
	// Selection is a readable summary of what was taken, and what was left out.
	Selection Selection
}

// Shards finds the shards of a target (pipeline/format/SHARDS.md). If there are none, or they are of
// several formats, the error contains the next step.
func Shards(ctx context.Context, c Config) (Found, error) {
	c.Format = c.Format.WithDefaults()
	f := finder{Config: c, left: map[string]Verdict{}}
	if err := refuseMount(&f.Target, f.Format.Name); err != nil {
		return Found{}, err
	}
	objects, err := f.list(ctx)
	if err != nil {
		return Found{}, err
	}
	f.unused = append(f.unused, f.unusedExcludes()...)
	files := asFiles(objects)
	d, err := f.found(ctx, files)
	if err != nil && f.assumed && ctx.Err() == nil {
		// The error's text counts the files of each format, so all must be known.
		f.AssumeAlike = false
		d, err = f.found(ctx, asFiles(objects))
	}
	if err == nil {
		err = f.refuseLogged(d.Format.Name, objects)
	}
	if err == nil {
		err = f.resolve(ctx, &d)
	}
	if err == nil {
		err = f.pair(ctx, &d, objects)
	}
	if err != nil {
		return Found{}, err
	}
	return d, f.refuseTwice(d.Shards)
}

// refuseLogged refuses a directory of Parquet files of which a log decides which ones count.
func (f *finder) refuseLogged(format string, objects []storage.Object) error {
	if format != "parquet" || !f.Target.Whole() {
		return nil
	}
	const next = "a log in it decides which of its files count, and lsiofs does not read it; name the files with a pattern to read them anyway"
	for path := range f.left {
		if path == "_delta_log" || strings.HasSuffix(path, "/_delta_log") {
			return fmt.Errorf("%s is a Delta table (%s): %s", &f.Target, path, next)
		}
	}
	for _, o := range objects {
		if dir, base := path.Split(o.Path); strings.HasSuffix(base, ".metadata.json") && path.Base(dir) == "metadata" {
			data := strings.TrimSuffix(dir, "metadata/") + "data/"
			if slices.ContainsFunc(objects, func(x storage.Object) bool { return strings.HasPrefix(x.Path, data) }) {
				return fmt.Errorf("%s is an Iceberg table (%s): %s", &f.Target, o.Path, next)
			}
		}
	}
	return nil
}

// resolve completes the parameters of a format that depend on the first shard that is not damaged.
// If all are damaged, any will do: the index pass then returns an error.
func (f *finder) resolve(ctx context.Context, d *Found) (err error) {
	first := d.Shards[0].Object
	if !formats.Unresolved(d.Format) {
		return nil
	}
	resolved := formats.Resolutions(d.Format)[0]
	for _, s := range d.Shards {
		r, err := Resolve(ctx, f.Reads, d.Format, s.Object)
		if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
			continue
		}
		if err != nil {
			return err
		}
		resolved = r
		break
	}
	if d.Unpacker, err = formats.New(resolved); err != nil {
		return err
	}
	d.Format = resolved
	d.StreamExtension = d.Unpacker.StreamExtension(Stem(first.Path))
	for i := range d.Shards {
		d.Shards[i] = AsShard(d.Unpacker, d.Shards[i].Object)
	}
	return nil
}

// Resolve completes the parameters of a format that depend on the first shard: see
// formats.Unresolved.
func Resolve(ctx context.Context, reads storage.Storage, f spec.Format, first storage.Object) (spec.Format, error) {
	reader := storage.NewReader(ctx, reads, first, 0)
	defer reader.Close()
	watched := &watchedReaderAt{raw: reader}
	resolved, err := formats.Resolve(f, watched, first.SizeBytes)
	switch {
	case watched.err != nil:
		return f, Unread(first.Path, watched.err)
	case err != nil:
		return f, fmt.Errorf("%s: %w", first.Path, err)
	}
	return resolved, nil
}

// watchedReaderAt remembers a failed read, so that it is not mistaken for a damaged file.
type watchedReaderAt struct {
	raw io.ReaderAt
	err error
}

func (w *watchedReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.raw.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// finder is one run of Shards.
type finder struct {
	Config
	assumed bool               // some files were assumed to be what their names imply
	left    map[string]Verdict // by the listing, by path
	notes   []string           // for the user, about what was found
	unused  []string           // likewise: what was named but does not exist
	// onUnreadable, if set, is called for files that can't be read to find out their format.
	onUnreadable func(o storage.Object, err error)
}

func (f *finder) found(ctx context.Context, files []file) (Found, error) {
	f.notes = nil
	if f.Format.Name != "auto" {
		return f.asked(files)
	}
	return f.auto(ctx, files)
}

// asked finds the shards of the requested format.
func (f *finder) asked(files []file) (Found, error) {
	unpacker, err := formats.New(f.Format)
	if err != nil {
		return Found{}, fmt.Errorf("format %s: %w", f.Format.Name, err)
	}
	if len(files) == 0 {
		return Found{}, f.errNoFiles()
	}
	var d decision
	if formats.OfDirectories(f.Format.Name) || len(f.Format.Arrays) > 0 || f.Target.file != "" {
		d = all(unpacker.Name(), files)
	} else {
		var counts map[string]int
		if d, counts = decideAsked(unpacker, files); len(counts) > 1 {
			return Found{}, f.errExtensions(counts)
		}
	}
	return f.result(f.Format, unpacker, files, d), nil
}

// all takes all files.
func all(format string, files []file) decision {
	d := decision{format: format, named: true, taken: make([]bool, len(files)), reasons: make([]string, len(files))}
	for i := range files {
		d.taken[i], d.reasons[i] = true, byAsking
	}
	return d
}

// auto finds the shards and their format.
func (f *finder) auto(ctx context.Context, files []file) (Found, error) {
	if err := f.refuseZarr(ctx, files, false); err != nil {
		return Found{}, err
	}
	if err := f.described(ctx, files); err != nil {
		return Found{}, err
	}
	namings := namingsOf(files)
	shown := make([]string, len(files))
	looks := wanted(files, namings, shown)
	if f.AssumeAlike {
		if err := f.assume(ctx, files, looks); err != nil {
			return Found{}, err
		}
	}
	if err := f.look(ctx, files, looks, shown); err != nil {
		return Found{}, err
	}
	if more := without(wanted(files, namings, shown), looks); len(more) > 0 { // the tars contain games
		if err := f.look(ctx, files, more, shown); err != nil {
			return Found{}, err
		}
		looks = append(looks, more...)
	}
	d, of, alike := decide(files, namings, shown)
	leaveCompanions(files, d)
	alike = f.sameFiles(files, d, alike)
	switch {
	case len(of) > 1:
		return Found{}, f.errTwoFormats(files, of)
	case len(alike) > 0:
		return Found{}, f.errAlike(files, d.format, of[d.format], alike[0])
	}
	if err := f.refuseLeftOut(files, d); err != nil {
		return Found{}, err
	}
	if len(of) == 0 {
		if err := f.refuseZarr(ctx, files, true); err != nil {
			return Found{}, err
		}
		return Found{}, f.errNoShards(files)
	}
	format := f.Format
	format.Name = d.format
	if format.Lc0Check && format.Name != "lc0" {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --lc0-check is for format lc0 only", &f.Target, format.Name)
	}
	if format.As != "" && format.Name != format.As.Format() {
		return Found{}, fmt.Errorf("%s holds shards of format %s: --as %s is for format %s only", &f.Target, format.Name, format.As, format.As.Format())
	}
	if err := format.RowsError(); err != nil {
		return Found{}, fmt.Errorf("%s holds shards of format %s: %w", &f.Target, format.Name, err)
	}
	unpacker, err := formats.New(format)
	if err != nil {
		return Found{}, err
	}
	found := f.result(format, unpacker, files, d)
	for _, i := range looks {
		if !d.taken[i] {
			found.Judged = append(found.Judged, files[i].Object)
		}
	}
	return found, nil
}

// result returns the Found for a decision.
func (f *finder) result(formatName spec.Format, unpacker format.Format, files []file, d decision) Found {
	r := Found{Format: formatName, Unpacker: unpacker}
	own, owns := unpacker.(format.Coded)
	taken := 0
	for i := range files {
		if d.taken[i] {
			taken++
		}
	}
	r.Shards = make([]Shard, 0, taken)
	for i := range files {
		if !d.taken[i] {
			continue
		}
		s := files[i].Shard
		switch {
		case formats.OfDirectories(formatName.Name): // whatever their names end in
			s.Codec = nil
		case owns:
			s.Codec = own.Codec(s.Object.Path, s.Codec)
		}
		if len(r.Shards) == 0 {
			stem := files[i].name.Stem
			if formats.OfDirectories(formatName.Name) {
				stem = s.Object.Path
			}
			r.StreamExtension = unpacker.StreamExtension(stem)
		}
		r.Shards = append(r.Shards, s)
	}
	leaveCompanions(files, d)
	r.Selection = f.selection(files, d)
	return r
}

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

// sniffRawBytes bounds what is read of a compressed file to decode format.SniffBytes.
const sniffRawBytes = 1 << 20

// look sets shown for each of the wanted files to the format that its first bytes show, "" for
// none. It opens the files that are not known, several at a time. A file that can't be read is an
// error.
func (f *finder) look(ctx context.Context, files []file, wanted []int, shown []string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, cmp.Or(f.AtATime, 2*runtime.GOMAXPROCS(0))))
	for _, i := range wanted {
		c := &files[i]
		if c.settled {
			continue
		}
		if format, known := f.known(c.Object); known {
			shown[i] = format
			continue
		}
		g.Go(func() error {
			format, err := f.content(gctx, c)
			if err != nil {
				return f.unreadable(gctx, c.Object, err)
			}
			shown[i] = format
			return nil
		})
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// known returns the answer of an earlier run, if there is one.
func (f *finder) known(o storage.Object) (format string, ok bool) {
	if f.Known == nil {
		return "", false
	}
	format, ok = f.Known(o)
	return format, ok && (format == "" || formats.Has(format))
}

func (f *finder) unreadable(ctx context.Context, o storage.Object, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.onUnreadable != nil {
		f.onUnreadable(o, err)
		return nil
	}
	return Unread(o.Path, err)
}

// Unread returns the error of a file that could not be read. No file is left out for that reason,
// because otherwise a dataset would depend on what was reachable when it was indexed.
func Unread(path string, err error) error {
	if _, names := errors.AsType[*storage.Error](err); !names {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%w: a file that can't be read is left out only with --exclude or a pattern", err)
}

// content returns the format that a file's content shows, "" for none.
func (f *finder) content(ctx context.Context, c *file) (string, error) {
	reader := storage.NewReader(ctx, f.Reads, c.Object, 0)
	defer reader.Close()
	raw := &headReader{raw: reader, sizeBytes: c.Object.SizeBytes}
	if contested(c) {
		x, err := claimant(c.Object, raw)
		if x == nil || err != nil {
			return "", err
		}
		return x.Name(), nil
	}
	head, codec, err := headOf(c, raw)
	if err != nil {
		return "", err
	}
	for _, name := range formats.OfContent() {
		x, err := formats.New(spec.Format{Name: name})
		if err != nil {
			return "", err
		}
		if own, ok := x.(format.OwnCodecs); ok && (!own.Takes(c.Object.Path) || codec == nil || codec.Name() != "gzip") {
			continue
		}
		if x.Sniff(head) {
			return name, nil
		}
	}
	return "", nil
}

// headReader reads the beginning of a file once, however small the parts are in which it is
// inspected: in a remote service each would be a request.
type headReader struct {
	raw       io.ReaderAt
	sizeBytes int64
	head      []byte // nil: not read yet
}

func (h *headReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > min(h.sizeBytes, format.SniffBytes) {
		return h.raw.ReadAt(p, off)
	}
	if h.head == nil {
		head := make([]byte, min(h.sizeBytes, format.SniffBytes))
		if n, err := h.raw.ReadAt(head, 0); n < len(head) {
			return 0, err
		}
		h.head = head
	}
	return copy(p, h.head[off:]), nil
}

// headOf returns the first format.SniffBytes of a file's decoded bytes, or fewer if it is shorter,
// and the codec that its first bytes show. If decoding fails, it returns what was decoded before.
func headOf(c *file, raw io.ReaderAt) ([]byte, format.Codec, error) {
	head := make([]byte, min(c.Object.SizeBytes, format.SniffBytes))
	n, err := raw.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	codec := formats.ContentCodec(c.Object.Path, head[:n])
	if codec == nil {
		return head[:n], nil, nil
	}
	head, err = decodedHead(codec, raw, min(c.Object.SizeBytes, sniffRawBytes))
	return head, codec, err
}

func decodedHead(codec format.Codec, raw io.ReaderAt, rawBytes int64) ([]byte, error) {
	watched := &watchedReader{r: io.NewSectionReader(raw, 0, rawBytes)}
	d, err := codec.NewDecoder(watched, 0)
	if err != nil {
		return nil, watched.err // nil: the file is not compressed, whatever its name implies
	}
	defer d.Close()
	head := make([]byte, format.SniffBytes)
	n := 0
	for n < len(head) {
		if _, err = d.Next(); err != nil {
			break
		}
		for n < len(head) && err == nil {
			var m int
			m, err = d.Read(head[n:])
			n += m
		}
		if err != nil && err != io.EOF {
			break
		}
	}
	if watched.err != nil {
		return nil, watched.err
	}
	return head[:n], nil
}

// watchedReader remembers a failed read, so that it is not mistaken for uncompressed content.
type watchedReader struct {
	r   io.Reader
	err error
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}
