package catalog

import (
	"context"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
// there is one.
func (s *LiveIndex) choose(b *batch, judged []discover.Judgement) bool {
	named := slices.ContainsFunc(judged, func(j discover.Judgement) bool { return j.Named && j.Format != textFormat }) ||
		slices.ContainsFunc(b.kept, func(k *known) bool { return discover.Named(k.shard.Path) })
	counts, first := make([]int, len(s.formats)), make([]string, len(s.formats))
	count := func(format int, path string) {
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
	if best < 0 {
		s.sort(b, judged)
		return false
	}
	if err := s.pin(best, first[best]); err != nil {
		s.config.Log.Error("shards can't be read", "format", s.formats[best].Name, "error", err)
		return false
	}
	s.config.Log.Info("the first shards say what the format is", "format", s.found.Format.Name, "shard", first[best])
	s.judgeAgain()
	return true
}

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
			s.wait(o, waiting{reason: "it is text, which counts only if there are no other shards: --format lines takes it"})
		case s.format < 0:
			s.passOver(o)
		case s.isShard(o, j):
			shards = append(shards, discover.AsShard(s.found.Unpacker, o))
		case s.config.Format.Name == "auto" && !s.named && j.Format == "" && discover.Takes(s.found.Unpacker, o.Path):
			// A beginning of no known format may be that of an incomplete shard.
			s.waitAgain(o, "its content is not of a known format: it may not be complete yet", false)
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
			s.waiting[path] = &waiting{object: o, reason: "it came before the first shard of its naming", again: s.config.Now()}
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
			s.waiting[path] = &waiting{object: o, reason: "it came before the first shard", again: s.config.Now()}
		}
	}
}
