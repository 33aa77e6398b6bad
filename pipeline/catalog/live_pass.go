package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// batchFiles is how many files are judged and read before a waiting call gets its turn.
const batchFiles = 512

// Index takes in files that are no longer being written, in their present state. When it returns,
// each of them is a shard, waiting, or passed over, except those that were forgotten meanwhile. If
// it ends early, what it has indexed by then is kept.
//
// An error is about the live index: ctx has ended, the live index is closed, or memory is short. It
// is never about a file.
func (s *LiveIndex) Index(ctx context.Context, settled []storage.Object) (err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	defer func() { err = s.closedOr(err) }()
	if len(settled) == 0 {
		return ctx.Err()
	}
	// The first files decide what the format and the kind are: by path, not by chance.
	settled = slices.Clone(settled)
	sort.Slice(settled, func(i, j int) bool { return settled[i].Path < settled[j].Path })
	for batch := range slices.Chunk(settled, batchFiles) {
		if err := s.takeTurn(ctx, func() error { return s.batch(ctx, batch) }); err != nil {
			return err
		}
	}
	return s.takeTurn(ctx, s.tidy)
}

// takeTurn calls f when no other call is reading.
func (s *LiveIndex) takeTurn(ctx context.Context, f func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if err := ctx.Err(); err != nil {
		return err
	}
	return f()
}

// batch takes in some files.
func (s *LiveIndex) batch(ctx context.Context, files []storage.Object) error {
	b := &batch{}
	s.begin(b, files)
	defer s.end(b)
	judged, err := s.judge(ctx, b)
	if err != nil {
		return err
	}
	if s.format < 0 && !s.choose(ctx, b, judged) { // only the holder of turn changes it
		return ctx.Err()
	}
	shards := s.sort(b, judged)
	if err := s.copyPassing(b); err != nil {
		return err
	}
	s.mu.Lock()
	together := s.kind == "" && s.uniform() != nil // by path, after all of them have been read
	if !together {
		s.admitKept(b)
	}
	s.mu.Unlock()
	return s.read(ctx, b, shards, together)
}

// batch is a group of files that is being taken in.
type batch struct {
	new []storage.Object // unknown, or changed since
	// kept are known, but were not seen in this run yet.
	kept []*known
}

// begin determines which files are new.
func (s *LiveIndex) begin(b *batch, files []storage.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = make(map[string]storage.Object, len(files))
	now := s.config.Now()
	for _, o := range files {
		k := s.known[o.Path]
		if k != nil && k.object() == o && !s.tooYoung(k, now) {
			if k.state == remembered {
				b.kept = append(b.kept, k)
				s.reading[o.Path] = o
			}
			continue
		}
		if w := s.waiting[o.Path]; w != nil && w.object == o && !w.due(now) {
			continue
		}
		if p, ok := s.passed[o.Path]; ok && p == o {
			continue
		}
		s.forget(o.Path) // the known one was different
		delete(s.passed, o.Path)
		b.new = append(b.new, o)
		s.reading[o.Path] = o
	}
}

// end ends a batch: what it has kept is counted as shards.
func (s *LiveIndex) end(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.format >= 0 {
		s.admitKept(b)
	}
	s.reading = nil
}

// admitKept admits the files that a batch has kept, by path. mu must be held.
func (s *LiveIndex) admitKept(b *batch) {
	slices.SortFunc(b.kept, func(x, y *known) int { return strings.Compare(x.shard.Path, y.shard.Path) })
	for _, k := range b.kept {
		if path := k.shard.Path; int(k.format) != s.format && s.reading[path] == k.object() {
			s.passed[path] = k.object()
		}
		s.admit(k)
	}
	b.kept = nil
}

// admit counts a file as a shard if it has not changed since it was read. mu must be held.
func (s *LiveIndex) admit(k *known) {
	path := k.shard.Path
	if s.known[path] != k || s.reading[path] != k.object() {
		return // forgotten meanwhile, or of another format
	}
	delete(s.waiting, path)
	s.setState(k, s.stateOf(k))
	if now := s.config.Now(); k.state == ofTwice && s.logged.allows(now) {
		s.config.Log.Warn("file is left out", "file", path, "reason", s.twiceReason(k))
	}
}

// stateOf returns the state of a file that exists and is indexed. mu must be held.
func (s *LiveIndex) stateOf(k *known) state {
	state := s.kindState(k)
	if state == isShard && s.twinOf(k) != nil {
		return ofTwice
	}
	return state
}

// kindState returns isShard if a shard is of the live index's kind, which the first one decides,
// else ofOtherKind. mu must be held.
func (s *LiveIndex) kindState(k *known) state {
	u := s.uniform()
	if u == nil || k.shard.Records == 0 {
		return isShard
	}
	if k.kind == manyKind {
		return ofOtherKind
	}
	kind := s.kinds[k.kind]
	if !u.SameKind(kind, kind) {
		return ofOtherKind // of several kinds at once
	}
	if s.kind == "" {
		s.kind = kind
	}
	if s.kind != kind && !u.SameKind(s.kind, kind) {
		return ofOtherKind
	}
	return isShard
}

// copyPassing copies to a journal what the next run would otherwise not find.
func (s *LiveIndex) copyPassing(b *batch) error {
	for _, k := range b.kept {
		if k.place.Passing() {
			if err := s.move(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// move copies the index of a file to another place in the journals.
func (s *LiveIndex) move(k *known) error {
	s.mu.RLock()
	x, from := index.Shard{Object: k.object(), Codec: uint32(k.codec), Blob: k.place.Blob()}, k.place
	s.mu.RUnlock()
	to, err := s.journals.Append(x)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if path := x.Object.Path; s.known[path] == k && k.place == from {
		k.place = to
		s.journals.Drop(from, path)
	} else {
		s.journals.Drop(to, path)
	}
	return nil
}

// newPass returns the pass that reads shards. mu must be held.
func (s *LiveIndex) newPass() *pass {
	o := opening{Config: s.config.Config, access: s.access, found: s.found, reporter: newReporter(nil)}
	o.OnCorrupt = spec.CorruptSkip // damage is judged by the live index
	return o.newPass(nil)
}

// read indexes shards, several at a time. Each is admitted when it has been read, or all of them
// together at the end of the batch. Those that may duplicate an earlier one are always admitted at
// the end, because of two duplicates the first by path counts, whichever was read first.
func (s *LiveIndex) read(ctx context.Context, b *batch, shards []discover.Shard, together bool) error {
	results := make([]*known, len(shards))
	later := laterTwins(shards)
	todo := make([]int, len(shards))
	for i := range todo {
		todo[i] = i
	}
	err := s.pass.each(ctx, shards, todo, func(ctx context.Context, i int, held *admitted) error {
		k, err := s.one(ctx, shards[i], held)
		if err != nil || k == nil {
			return err
		}
		if results[i] = k; !together && !later[i] {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.admit(k)
		}
		return nil
	})
	for i, k := range results {
		if k != nil && (together || later[i]) {
			b.kept = append(b.kept, k)
		}
	}
	return err
}

// one indexes a shard, and stores it in a journal unless it must wait.
func (s *LiveIndex) one(ctx context.Context, c discover.Shard, held *admitted) (*known, error) {
	x, err := s.pass.shard(ctx, c, held)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	switch {
	case errors.Is(err, storage.ErrChanged):
		s.wait(c.Object, waiting{reason: "it changed while it was being read"})
		return nil, nil
	case err != nil:
		s.waitAgain(c.Object, reasonOf(c.Object.Path, err), false)
		return nil, nil
	}
	reason, damaged := damageOf(x.Blob)
	if !damaged {
		reason, err = s.openEnd(ctx, c, x)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // not damage, so it is never admitted
		s.waitAgain(c.Object, reasonOf(c.Object.Path, err), false)
		return nil, nil
	case reason != "" && !s.waitAgain(c.Object, reason, s.config.OnCorrupt == spec.CorruptSkip):
		return nil, nil
	}
	return s.keep(x)
}

// keep writes a shard to a journal and remembers it.
func (s *LiveIndex) keep(x index.Shard) (*known, error) {
	place, err := s.journals.Append(x)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.newKnown(s.format, place, x)
	path := x.Object.Path
	if before := s.known[path]; before != nil {
		s.drop(path, before)
	}
	s.known[path] = k
	if s.reading[path] != x.Object { // forgotten
		s.gone = append(s.gone, gone{path, s.config.Now()})
	}
	return k, nil
}

// tidy drops what is no longer needed, and compacts journals in which much is unused.
func (s *LiveIndex) tidy() error {
	s.dropUnseen()
	s.mu.Lock()
	s.dropGone()
	s.mu.Unlock()
	for {
		sparse := s.journals.Sparse()
		if sparse == nil {
			return nil
		}
		var live []*known
		s.mu.RLock()
		for _, k := range s.known {
			if k.place.In(sparse) {
				live = append(live, k)
			}
		}
		s.mu.RUnlock()
		for _, k := range live {
			if err := s.move(k); err != nil {
				return err
			}
		}
		s.journals.Retire(sparse)
	}
}

// judge returns for each of the batch's new files what it is by itself. If a format was requested,
// all files whose names match are of it.
func (s *LiveIndex) judge(ctx context.Context, b *batch) ([]discover.Judgement, error) {
	if s.config.Format.Name == "auto" {
		judged, err := s.arrivals.Judge(ctx, b.new)
		if err != nil {
			return nil, err
		}
		for i, j := range judged {
			if j.Err != nil {
				s.waitAgain(b.new[i], j.Err.Error(), false)
			}
		}
		return judged, nil
	}
	s.decideNames(b)
	judged := make([]discover.Judgement, len(b.new))
	for i, o := range b.new {
		if s.takesAll || discover.Takes(s.found.Unpacker, o.Path) {
			judged[i] = discover.Judgement{Format: s.found.Format.Name, Named: true}
		}
	}
	return judged, nil
}

const textFormat = "lines"

// decideNames decides, with the first files, whether the shards of the requested format must have
// its extension: if none has it, all files are shards.
func (s *LiveIndex) decideNames(b *batch) {
	if s.namesDecided || len(b.new)+len(b.kept) == 0 {
		return
	}
	s.namesDecided, s.takesAll = true, true
	takes := func(path string) { s.takesAll = s.takesAll && !discover.Takes(s.found.Unpacker, path) }
	s.mu.RLock()
	defer s.mu.RUnlock()
	for path := range s.known { // what earlier runs have decided
		takes(path)
	}
	for _, o := range b.new {
		takes(o.Path)
	}
}

// choose decides on the format: that of most of the batch's files whose names imply one, not
// counting text; if no name does, that of most files whose content shows one. It reports whether
// there is one. It sets Err of files that can't be read for this.
func (s *LiveIndex) choose(ctx context.Context, b *batch, judged []discover.Judgement) bool {
	named := slices.ContainsFunc(judged, func(j discover.Judgement) bool { return j.Named && j.Format != textFormat }) ||
		slices.ContainsFunc(b.kept, func(k *known) bool { return discover.Named(k.shard.Path) })
	counts, first := make([]int, len(s.formats)), make([]string, len(s.formats))
	count := func(format int, path string) {
		format = s.formatNumber(s.formats[format].Name)
		if counts[format]++; first[format] == "" || path < first[format] {
			first[format] = path
		}
	}
	for _, k := range b.kept {
		if !named || discover.Named(k.shard.Path) {
			count(int(k.format), k.shard.Path)
		}
	}
	for i, j := range judged {
		if f := s.formatNumber(j.Format); f >= 0 && j.Err == nil && j.Format != textFormat && j.Named == named {
			count(f, b.new[i].Path)
		}
	}
	best := -1
	for f, n := range counts {
		if n > 0 && (best < 0 || n > counts[best] || n == counts[best] && first[f] < first[best]) {
			best = f
		}
	}
	if best >= 0 {
		best = s.resolve(ctx, b, judged, best)
	}
	if best < 0 {
		if ctx.Err() == nil {
			s.sort(b, judged)
		}
		return false
	}
	if err := s.pin(best, first[best]); err != nil {
		s.config.Log.Error("shards can't be read", "format", s.formats[best].Name, "error", err)
		return false
	}
	s.config.Log.Info("the first shards determine the format", "format", s.found.Format.Name, "shard", first[best])
	s.judgeAgain()
	return true
}

// resolve returns the number of the format that the batch's files of a format have, of those with
// its name: that of the shards of earlier runs, or else that of the first file. Files from which it
// does not follow wait. It returns -1 if there are no others.
func (s *LiveIndex) resolve(ctx context.Context, b *batch, judged []discover.Judgement, format int) int {
	f := s.config.Format.WithDefaults()
	if f.Name = s.formats[format].Name; !formats.Unresolved(f) {
		return format
	}
	for _, k := range b.kept {
		if s.formats[k.format].Name == f.Name {
			return int(k.format)
		}
	}
	for i, o := range b.new {
		if judged[i].Format != f.Name || judged[i].Err != nil {
			continue
		}
		resolved, err := discover.Resolve(ctx, s.reads, f, o)
		switch {
		case ctx.Err() != nil:
			return -1
		case err == nil:
			return slices.IndexFunc(s.formats, func(x spec.Format) bool { return x.Name == f.Name && x.As == resolved.As })
		}
		judged[i].Err = err
		s.waitAgain(o, reasonOf(o.Path, err), false)
	}
	return -1
}

// formatNumber returns the number of the first format with a name, or -1.
func (s *LiveIndex) formatNumber(name string) int {
	for i := range s.formats {
		if s.formats[i].Name == name {
			return i
		}
	}
	return -1
}

// sort returns the batch's shards to read. Other files are passed over, or wait. Files whose names
// do not imply a format are decided together with all files of the same naming pattern: once one of
// them is a shard, all are, including those that came before.
func (s *LiveIndex) sort(b *batch, judged []discover.Judgement) (shards []discover.Shard) {
	if s.format >= 0 && s.config.Format.Name == "auto" {
		s.learn(b, judged)
	}
	for i, o := range b.new {
		switch j := judged[i]; {
		case j.Err != nil:
		case s.format < 0 && j.Format == textFormat:
			s.wait(o, waiting{reason: "it is text, which is used only if there are no other shards: --format lines uses it"})
		case s.format < 0:
			s.passOver(o)
		case s.isShard(o, j):
			shards = append(shards, discover.AsShard(s.found.Unpacker, o))
		case s.config.Format.Name == "auto" && !s.named && j.Format == "" && discover.Takes(s.found.Unpacker, o.Path):
			// A beginning of no known format may be that of an incomplete shard.
			s.waitAgain(o, "its content has no known format: it may be incomplete", false)
		default:
			s.passOver(o)
		}
	}
	return shards
}

// isShard reports whether a file is a shard of the live index's format.
func (s *LiveIndex) isShard(o storage.Object, j discover.Judgement) bool {
	return j.IsShard(s.found.Unpacker, o.Path, s.named, s.config.Format.Name == "auto" && s.namings[discover.NamingOf(o.Path)])
}

// learn notes the naming patterns of the shards, and makes files be judged again that were passed
// over before others of their pattern came.
func (s *LiveIndex) learn(b *batch, judged []discover.Judgement) {
	if s.namings == nil {
		s.namings = map[string]bool{}
		s.named = slices.ContainsFunc(b.kept, func(k *known) bool { return discover.Named(k.shard.Path) })
		for _, j := range judged {
			s.named = s.named || j.Named && j.Format == s.found.Format.Name
		}
	}
	var fresh []string
	add := func(path string) {
		if n := discover.NamingOf(path); !s.namings[n] {
			s.namings[n] = true
			fresh = append(fresh, n)
		}
	}
	for _, k := range b.kept {
		if int(k.format) == s.format {
			add(k.shard.Path)
		}
	}
	for i, o := range b.new {
		if j := judged[i]; j.Err == nil && j.Format == s.found.Format.Name && (j.Named || !s.named) {
			add(o.Path)
		}
	}
	if len(fresh) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, o := range s.passed {
		if slices.Contains(fresh, discover.NamingOf(path)) {
			delete(s.passed, path)
			s.waiting[path] = &waiting{object: o, reason: "it arrived before the first shard with its naming pattern", again: s.config.Now()}
		}
	}
}

func (s *LiveIndex) passOver(o storage.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[o.Path] == o {
		delete(s.waiting, o.Path)
		s.passed[o.Path] = o
	}
}

// judgeAgain reconsiders the files that came before there was a format: text is passed over, and
// files with the name of a shard wait.
func (s *LiveIndex) judgeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, w := range s.waiting {
		if w.again.IsZero() {
			delete(s.waiting, path)
			s.passed[path] = w.object
		}
	}
	for path, o := range s.passed {
		if discover.Takes(s.found.Unpacker, path) {
			delete(s.passed, path)
			s.waiting[path] = &waiting{object: o, reason: "it arrived before the first shard", again: s.config.Now()}
		}
	}
}

// damageOf returns the first damage of a shard, if there is any.
func damageOf(b index.Blob) (reason string, damaged bool) {
	l := b.Losses()
	if len(l.First) == 0 {
		return "", false
	}
	return l.First[0].Error(), true
}

// mostLine is the largest last line that is checked.
const mostLine = 64 << 20

// openEnd returns why a jsonl shard may not be whole, "" if it is: its last line has no newline,
// and is not valid JSON. In a compressed shard the codec detects a missing end. The error is that
// the line can't be read.
func (s *LiveIndex) openEnd(ctx context.Context, c discover.Shard, x index.Shard) (reason string, err error) {
	b := x.Blob
	h := b.Header()
	if s.pass.unpacker.Name() != "jsonl" || x.Codec != 0 || h.Records == 0 {
		return "", nil
	}
	block, place := b.BlockOf(h.Records-1, h.Records)
	at, size := block.Offset(place), block.Size(place)
	if at+size <= h.DecodedBytes || size > mostLine {
		return "", nil // it ends with a newline
	}
	line := make([]byte, h.DecodedBytes-at)
	if err := storage.ReadAt(ctx, s.reads, c.Object, line, at); err != nil || json.Valid(line) {
		return "", err
	}
	return format.Corrupt(int64(h.Records)-1, at, "the last line has no end, and is not JSON").Error(), nil
}
