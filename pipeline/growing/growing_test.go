package growing

import (
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

func paths(shards []catalog.LiveShard) (paths []string) {
	for _, s := range shards {
		paths = append(paths, s.Path)
	}
	return paths
}

func named(paths ...string) (shards []catalog.LiveShard) {
	for i, p := range paths {
		shards = append(shards, catalog.LiveShard{Path: p, ModTimeNanos: int64(i), Records: 10, Units: 2, Bytes: 100})
	}
	return shards
}

func TestNamesAreSortedByTheirNumbers(t *testing.T) {
	for _, want := range [][]string{
		{"training.10.gz", "training.9.gz", "training.1.gz"},
		{"training.20241231-1217.tar", "training.20241231-117.tar", "training.20240101-9999.tar"},
		{"b/x-2.tar", "a/x-2.tar", "c/x-1.tar"}, // base names first, then whole paths
		{"a/a10b9", "a/a10b2", "a/a10", "a/a2b100"},
		{"ab", "a1", "a"},                    // letters sort after digits; a shorter name is older
		{"a8", "a08", "a07", "a007"},         // equal numbers: by path
		{"x99999999999999999999999", "x100"}, // numbers of any length
		{"é2", "é1"},                         // bytes, whatever they encode
	} {
		shards := named(want...)
		rand.New(rand.NewPCG(1, 1)).Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
		Newest(shards, ByName)
		require.Equal(t, want, paths(shards))
	}
}

// The order of names is total: it does not depend on the order before sorting.
func TestOrderOfNamesIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.RuneFrom([]rune("0129ab.-")), 1, 6, -1)
		all := named(rapid.SliceOfNDistinct(name, 2, 12, rapid.ID[string]).Draw(t, "names")...)
		by := rapid.SampledFrom([]By{ByName, ByTime}).Draw(t, "by")
		one, other := slices.Clone(all), slices.Clone(all)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		Newest(one, by)
		Newest(other, by)
		require.Equal(t, one, other)
		// Any two of them are in the same order as if sorted alone.
		i, j := r.IntN(len(one)), r.IntN(len(one))
		two := []catalog.LiveShard{one[max(i, j)], one[min(i, j)]}
		Newest(two, by)
		require.Equal(t, []catalog.LiveShard{one[min(i, j)], one[max(i, j)]}, two)
	})
}

func TestTimesSortBeforePaths(t *testing.T) {
	shards := []catalog.LiveShard{{Path: "a", ModTimeNanos: 1}, {Path: "b", ModTimeNanos: 1}, {Path: "c", ModTimeNanos: 0}, {Path: "d", ModTimeNanos: 9}}
	Newest(shards, ByTime)
	require.Equal(t, []string{"d", "b", "a", "c"}, paths(shards))
}

func TestWindowsAreWholeShardsUpToRequestedAmount(t *testing.T) {
	shards := named("9", "8", "7", "6", "5")
	for text, want := range map[string]int{
		"all": 5, "": 5, "1units": 1, "2units": 1, "3units": 2, "10units": 5, "11units": 5, "25records": 3, "30records": 3, "31records": 4,
		"2shards": 2, "9shards": 5, "250B": 3, "1KiB": 5, "100b": 1,
	} {
		w, err := ParseWindow(text)
		require.NoError(t, err, text)
		require.Len(t, w.Choose(shards, someday), want, text)
		require.Equal(t, shards[:want], w.Choose(shards, someday), text)
		if text != "" {
			require.Equal(t, text, w.String())
		}
	}
	require.Equal(t, "all", Window{}.String())
	require.Empty(t, Window{Measure: Units, N: 3}.Choose(nil, someday))
	for _, text := range []string{"0units", "units", "-1records", "5", "5 games", "-3h", "0s", "1.5shards", "99999999999999999999units"} {
		_, err := ParseWindow(text)
		require.ErrorContains(t, err, "is not a window", text)
	}
}

// someday is later than the times of all shards in tests.
var someday = time.Unix(0, 100*time.Hour.Nanoseconds())

// A shard whose time is in the future is in the window, and excludes no other shard that would be
// in it otherwise.
func TestFutureTimestampEmptiesNoWindow(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(path string, d time.Duration) catalog.LiveShard {
		return catalog.LiveShard{Path: path, ModTimeNanos: now.Add(d).UnixNano()}
	}
	w, err := ParseWindow("1h")
	require.NoError(t, err)
	shards := []catalog.LiveShard{at("9", -30*time.Minute), at("8", -time.Minute), at("7", 2*time.Hour), at("6", -62*time.Minute), at("5", -time.Hour), at("4", 1000*time.Hour)}
	require.Equal(t, []string{"9", "8", "7", "5", "4"}, paths(w.Choose(shards, now)))
	require.True(t, IsAhead(&shards[2], now) && IsAhead(&shards[5], now) && !IsAhead(&shards[1], now))
	ahead := []catalog.LiveShard{at("9", 3*time.Hour), at("8", 5*time.Hour), at("7", 5*time.Hour-30*time.Minute)}
	require.Equal(t, []string{"8", "7"}, paths(w.Choose(ahead, now)), "where all are ahead it is the clock here that is wrong")
	same := []catalog.LiveShard{at("9", time.Second), at("8", -time.Hour+2*time.Second), at("7", -time.Hour)}
	require.False(t, IsAhead(&same[0], now), "clocks are not to the second")
	require.Equal(t, []string{"9", "8"}, paths(w.Choose(same, now)))
}

func TestTimeWindowFollowsNewestShard(t *testing.T) {
	hour := time.Hour.Nanoseconds()
	shards := []catalog.LiveShard{{Path: "9", ModTimeNanos: 8 * hour}, {Path: "8", ModTimeNanos: 10 * hour}, {Path: "7", ModTimeNanos: 2 * hour}, {Path: "6", ModTimeNanos: 9 * hour}}
	w, err := ParseWindow("2h")
	require.NoError(t, err)
	require.Equal(t, []string{"9", "8", "6"}, paths(w.Choose(shards, someday)))
	w, err = ParseWindow("1h30m")
	require.NoError(t, err)
	require.Equal(t, []string{"8", "6"}, paths(w.Choose(shards, someday)))
	require.Empty(t, w.Choose(nil, someday))
}

func TestEnoughMatchesRequest(t *testing.T) {
	n := catalog.News{NewShards: 3, NewRecords: 31, NewUnits: 6, GoneShards: 2}
	for text, enough := range map[string]bool{"0": true, "": true, "6units": true, "7units": false, "31records": true, "32records": false, "3shards": true, "4shards": false} {
		a, err := ParseAmount(text)
		require.NoError(t, err, text)
		require.Equal(t, enough, a.Enough(n), text)
	}
	for _, text := range []string{"5", "all", "1GiB", "2h", "-1units"} {
		_, err := ParseAmount(text)
		require.ErrorContains(t, err, "is not an amount", text)
	}
	require.InDelta(t, 0.32, Uses(500_000/39, 40_000), 0.001)
	require.Equal(t, math.Inf(1), Uses(1, 0))
}

// Sorting by first numbers is only an optimization: the result is the order of compareNames.
func TestNewestSortsLikeCompareNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.StringMatching(`[ab]{0,2}(0{0,2}[0-9]{1,3}|[0-9]{18,21})?[.a]?[0-9]{0,2}`)).Draw(t, "names")
		var shards []catalog.LiveShard
		for i, name := range names {
			shards = append(shards, catalog.LiveShard{Path: strconv.Itoa(i) + "/" + name})
		}
		Newest(shards, ByName)
		for i := 1; i < len(shards); i++ {
			a, b := path.Base(shards[i-1].Path), path.Base(shards[i].Path)
			c := compareNames(a, b)
			if c < 0 || c == 0 && shards[i-1].Path < shards[i].Path {
				t.Fatalf("%s comes before %s", shards[i-1].Path, shards[i].Path)
			}
		}
	})
}

// An epoch can't have more new shards than its window; it may have more units and records than the
// window asks for, because shards are taken whole.
func TestRequestedNewShardsFitWindow(t *testing.T) {
	for _, c := range []struct {
		window, minNew string
		refused        bool
	}{
		{"4shards", "5shards", true}, {"4shards", "4shards", false}, {"4shards", "5units", false}, {"4shards", "0", false},
		{"all", "5shards", false}, {"", "5shards", false}, {"4units", "5units", false}, {"4records", "5shards", false}, {"1h", "5shards", false},
	} {
		w, err := ParseWindow(c.window)
		require.NoError(t, err)
		a, err := ParseAmount(c.minNew)
		require.NoError(t, err)
		if err := a.Within(w); c.refused {
			require.EqualError(t, err, "--min-new 5shards with --window 4shards would wait forever: an epoch never has more than 4 shards: lower --min-new to that, or widen --window")
		} else {
			require.NoError(t, err, c)
		}
	}
}
