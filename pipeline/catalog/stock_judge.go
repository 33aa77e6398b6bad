package catalog

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// judge says of the batch's new files what their formats are, "" for none. If a format was
// asked for, all are of it whose names do.
func (s *Stock) judge(ctx context.Context, b *batch) ([]string, error) {
	if s.config.Format.Name == "auto" {
		judged, err := s.arrivals.Judge(ctx, b.new)
		if err != nil {
			return nil, err
		}
		names := make([]string, len(judged))
		for i, j := range judged {
			if names[i] = j.Format; j.Err != nil {
				s.waitAgain(b.new[i], j.Err.Error(), false)
				names[i] = unreadableFormat
			}
		}
		return names, nil
	}
	s.decideNames(b)
	names := make([]string, len(b.new))
	for i, o := range b.new {
		if s.takesAll || discover.Takes(s.found.Unpacker, o.Path) {
			names[i] = s.found.Format.Name
		}
	}
	return names, nil
}

const (
	textFormat       = "lines"
	unreadableFormat = "?" // it could not be read to see; it waits
)

// decideNames decides, at the first files, whether the shards of the format that was asked
// for have its extension: where none has, all files are shards.
func (s *Stock) decideNames(b *batch) {
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

// choose decides on the format: that of most of the batch's files, text aside. It says
// whether there is one.
func (s *Stock) choose(b *batch, formats []string) bool {
	counts, first := make([]int, len(s.formats)), make([]string, len(s.formats))
	count := func(format int, path string) {
		if counts[format]++; first[format] == "" || path < first[format] {
			first[format] = path
		}
	}
	for _, k := range b.kept {
		count(int(k.format), k.shard.Path)
	}
	for i, name := range formats {
		if f := s.formatNumber(name); f >= 0 && name != textFormat {
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
		s.sort(b, formats)
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

func (s *Stock) formatNumber(name string) int {
	for i := range s.formats {
		if s.formats[i].Name == name {
			return i
		}
	}
	return -1
}

// sort gives the batch's shards to read. Other files are passed over, or wait.
func (s *Stock) sort(b *batch, formats []string) (shards []discover.Shard) {
	for i, o := range b.new {
		switch name := formats[i]; {
		case name == unreadableFormat:
		case s.format < 0 && name == textFormat:
			s.wait(o, waiting{reason: "it is text, which is a shard if there is nothing else: --format lines takes it"})
		case s.format >= 0 && name == s.found.Format.Name:
			shards = append(shards, discover.AsShard(s.found.Unpacker, o))
		case s.format >= 0 && s.config.Format.Name == "auto" && name == "" && discover.Takes(s.found.Unpacker, o.Path):
			// A beginning that says nothing may be that of a shard.
			s.waitAgain(o, "its content is of no known format: it may not be whole yet", false)
		default:
			s.passOver(o)
		}
	}
	return shards
}

func (s *Stock) passOver(o storage.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[o.Path] == o {
		delete(s.waiting, o.Path)
		s.passed[o.Path] = o
	}
}

// judgeAgain looks at what came before there was a format: text is passed over, and what
// has the name of a shard waits.
func (s *Stock) judgeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, w := range s.waiting {
		if w.again.IsZero() {
			delete(s.waiting, path)
			s.passed[path] = w.object
		}
	}
	for path, o := range s.passed {
		if o.SizeBytes > 0 && discover.Takes(s.found.Unpacker, path) {
			delete(s.passed, path)
			s.waiting[path] = &waiting{object: o, reason: "it came before the first shard", again: s.config.Now()}
		}
	}
}
