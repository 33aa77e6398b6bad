package soak

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// visitFor is how long a temporary mount lasts.
const visitFor = 5 * time.Second

// leastSoak is the shortest soak whose figures are judged: growth in the first half minute is not
// yet a leak.
const leastSoak = time.Minute

func TestSoak(t *testing.T) {
	serve.Tier(t, serve.Night)
	needAll(t)
	t.Logf("again: go test -v ./integration/soak -run TestSoak -soak %v -soak-seed %d -timeout 0", *soakFor, *soakSeed)
	r := rand.New(rand.NewPCG(*soakSeed, 0))
	var models []*model
	for _, k := range []kind{tars, linesGz, fixed, tarsZstd} {
		d := makeDataset(t, k, *soakSeed)
		models = append(models, newModel(d, newReference(t, d), drawSettings(r, len(d.records))))
	}
	var stay []*mounted
	for _, m := range models[:3] {
		// For the compressed dataset, sometimes more than fits in memory: then it is spooled.
		stay = append(stay, mount(t, m, "--memory", []string{"1MiB", "4MiB", "64MiB"}[r.IntN(3)]))
	}

	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	defer group.Wait()
	defer cancel()
	samples := make([][]sample, len(stay))
	for i, s := range stay {
		s.keepBusy(ctx, group, *soakSeed+uint64(i))
		group.Go(func() (err error) {
			samples[i], err = s.watch(ctx)
			return err
		})
	}
	visits := 0
	for ; ctx.Err() == nil && !soaked(stay, time.Since(began)); visits++ {
		m := models[r.IntN(len(models))]
		visit(ctx, t, newModel(m.d, m.ref, drawSettings(r, len(m.d.records))), r.Uint64())
	}
	cancel()
	require.NoError(t, group.Wait())

	for i, s := range stay {
		text, grown := judge(samples[i])
		t.Logf("%s, %v:\n  %v\n%s", s.m.d.name, s.m.s, &s.done, text)
		if len(grown) > 0 && *soakFor >= leastSoak {
			t.Errorf("%s: grown are %q", s.m.d.name, grown)
		}
		s.end(t)
	}
	t.Logf("%d more mounts came and went", visits)
}

// soaked reports whether a soak has lasted long enough. On a slow machine it has to last, within
// limits, until each mount has been restored often enough for its figures to be judged.
func soaked(stay []*mounted, lasted time.Duration) bool {
	if lasted < *soakFor {
		return false
	}
	for _, s := range stay {
		if s.done.restores.Load() < 6*leastRestores && *soakFor >= leastSoak && lasted < 10**soakFor {
			return false // twice as many in each third, because they are not evenly spread
		}
	}
	return true
}

// mount mounts, with its own index and spool.
func mount(t *testing.T, m *model, more ...string) *mounted {
	t.Helper()
	s := startServer(t, m, t.TempDir(), append(more, "--index-dir", t.TempDir())...)
	require.NoError(t, s.WaitUntilMounted(), "%s, %v", m.d.name, m.s)
	return s
}

// keepBusy starts all clients, which run until ctx ends.
func (s *mounted) keepBusy(ctx context.Context, group *errgroup.Group, seed uint64) {
	for i, c := range clients {
		group.Go(func() error { return c.run(ctx, s, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
}

// visit is a temporary mount, with all clients at once.
func visit(ctx context.Context, t *testing.T, m *model, seed uint64) {
	s := mount(t, m)
	visiting, cancel := context.WithTimeout(ctx, visitFor)
	defer cancel()
	group, visiting := errgroup.WithContext(visiting)
	s.keepBusy(visiting, group, seed)
	require.NoError(t, group.Wait(), "%v, seed %d", m.s, seed)
	s.end(t)
	m.epochs = nil // the test keeps its mounts for its cleanup
}
