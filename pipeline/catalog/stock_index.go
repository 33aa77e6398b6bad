package catalog

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// batchFiles is how many files are judged and read before a waiting call gets its turn.
const batchFiles = 512

// Index takes in files that are no longer being written, in their present state. When it returns,
// each of them is a shard, waiting, or passed over, except those that were forgotten meanwhile. If
// it ends early, what it has indexed by then is kept.
//
// An error is about the live index: ctx has ended, the live index is closed, or memory is short. It is never
// about a file.
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
	if s.format < 0 && !s.choose(b, judged) { // only the holder of turn changes it
		return nil
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

// kindState returns isShard if a shard is of the live index's kind, which the first one decides, else
// ofOtherKind. mu must be held.
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
		s.wait(c.Object, waiting{reason: "it changed while it was read"})
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
