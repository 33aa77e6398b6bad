package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/union"
)

// schemeOfMount is the scheme of the mount's dataset or mixture.
func (m *mount) schemeOfMount() (*scheme, error) {
	if !m.spec.Mix.Asked() {
		return schemeOf(m.spec.Dataset)
	}
	return &scheme{
		name: "mixture", find: findSources, over: asItIs,
		profile: func(string, *Options) (profile.Profile, []profile.Cell) { return m.slowest() },
		open: func(m *mount, _, _ string) (storage.Storage, error) {
			p, measured := m.slowest() // some adjust their profile once they are open
			m.profile, m.measured = p.Or(), measured
			return m.mixedFiles(), nil
		},
	}, nil
}

// findSources is scheme.find for a mixture: it finds each source.
func findSources(ctx context.Context, m *mount) (f found, err error) {
	f.close = func() error {
		var errs []error
		for _, s := range m.sources {
			errs = append(errs, s.close())
		}
		return errors.Join(errs...)
	}
	m.spec.Mix.Sources = slices.Clone(m.spec.Mix.Sources)
	names := make([]string, len(m.spec.Mix.Sources))
	for i, x := range m.spec.Mix.Sources {
		s, err := openSourceMount(ctx, m, x)
		if err != nil {
			return found{}, errors.Join(fmt.Errorf("source %s: %w", x.Name, err), f.close())
		}
		m.sources = append(m.sources, s)
		x.Dataset = s.spec.Dataset // without secrets
		m.spec.Mix.Sources[i] = x
		names[i] = x.String()
	}
	f.name = "--mix " + strings.Join(names, " --mix ")
	return f, nil
}

// openSourceMount opens the mount of a source. It uses the mixture's engine, and its storages get a
// share of the memory.
func openSourceMount(ctx context.Context, whole *mount, x spec.Source) (*mount, error) {
	s := whole.spec
	s.Dataset, s.Mix, s.Order.Length, s.Order.Split = x.Dataset, spec.Mix{}, 0, spec.Split{}
	s.Remote = x.Bucket.Over(s.Remote)
	s.MemoryBytes = max(s.MemoryBytes/int64(len(whole.spec.Mix.Sources)), 1<<20)
	o := whole.options
	o.Faults, o.afterStep = nil, nil
	m := &mount{spec: s, options: o, log: whole.log.With("source", x.Name), started: time.Now(), engine: whole.engine, credentials: whole.credentials, source: x.Name, siblings: len(whole.spec.Mix.Sources)}
	m.meter.Cores = runtime.GOMAXPROCS(0)
	var err error
	if m.scheme, err = schemeOf(s.Dataset); err != nil {
		return nil, err
	}
	err = m.opened.take(
		step{"target", func() (func() error, error) { return m.find(ctx) }},
		step{"profile", m.findProfile},
	)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// slowness ranks kinds of storage: reads that suit a service don't hurt files, but reads that suit
// files are far too small for a service.
var slowness = map[profile.Kind]int{
	profile.KindMemory: 1, profile.KindSSD: 2, profile.KindVirtual: 3, profile.KindUnknown: 4,
	profile.KindDisk: 5, profile.KindNetwork: 6, profile.KindWeb: 7, profile.KindObject: 8,
}

// slowest is the profile of the slowest source.
func (m *mount) slowest() (profile.Profile, []profile.Cell) {
	if m.options.Storage != nil {
		return *m.options.Storage, nil
	}
	worst := m.sources[0]
	for _, s := range m.sources[1:] {
		if slowness[s.profile.Kind] > slowness[worst.profile.Kind] {
			worst = s
		}
	}
	return worst.profile, worst.measured
}

// mixedFiles is the union of the storages of all sources. Each has been opened together with its
// catalog.
func (m *mount) mixedFiles() storage.Storage {
	return m.mixOf(func(s *mount) storage.Storage { return s.files })
}

// mixedReads is the union of the storages that records are read from.
func (m *mount) mixedReads() storage.Storage {
	return m.mixOf(func(s *mount) storage.Storage { return s.reads })
}

func (m *mount) mixOf(which func(*mount) storage.Storage) storage.Storage {
	list := make([]union.Source, len(m.sources))
	for i, s := range m.sources {
		list[i] = union.Source{Name: m.spec.Mix.Sources[i].Name, Storage: which(s)}
	}
	return union.Wrap(list)
}

// SourceStatus is what the storage of a source of a mixture is doing.
type SourceStatus struct {
	Name   string           `json:"name"`
	Remote *remote.Stats    `json:"remote,omitempty"`
	Cache  *diskcache.Stats `json:"cache,omitempty"`
}

func (m *mount) sourceStatus() (list []SourceStatus) {
	for i, s := range m.sources {
		list = append(list, SourceStatus{m.spec.Mix.Sources[i].Name, s.remoteStats(), s.cacheStats()})
	}
	return list
}
