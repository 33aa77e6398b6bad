package discover

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNamesOfFilesBeingWritten(t *testing.T) {
	for _, name := range []string{"a.tar.tmp", "a.part", "a.tar.partial", "a.tar~", "a.tar._COPYING_"} {
		require.False(t, Finished(name), name)
	}
	for _, name := range []string{"a.tar", "part", "a.tmp.tar", "training.1.gz"} {
		require.True(t, Finished(name), name)
	}
}

// A file is settled once no process has written it between two equal looks a second apart, or, if
// that is unknown, once it has stayed unchanged for Quiet.
func TestIncompleteFileIsNotAShard(t *testing.T) {
	at := time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	size := func(n int64) Look { return Look{SizeBytes: n, Inode: 7} }
	open := func(n int64) Look { l := size(n); l.Written = true; return l }
	unknown := func(n int64) Look { l := size(n); l.Unknown = true; return l }
	type look struct {
		after   time.Duration
		look    Look
		settled bool
	}
	for name, looks := range map[string][]look{
		"closed":                 {{0, size(5), false}, {time.Second, size(5), true}},
		"looked at too soon":     {{0, size(5), false}, {999 * time.Millisecond, size(5), false}, {time.Second, size(5), true}},
		"open, with long pauses": {{0, open(5), false}, {time.Hour, open(5), false}, {time.Hour + time.Second, size(5), false}, {time.Hour + 2*time.Second, size(5), true}},
		"grows":                  {{0, size(5), false}, {time.Second, size(6), false}, {1999 * time.Millisecond, size(6), false}, {2 * time.Second, size(6), true}},
		"opened again":           {{0, size(5), false}, {500 * time.Millisecond, open(5), false}, {time.Second, size(5), false}, {2 * time.Second, size(5), true}},
		"not known":              {{0, unknown(5), false}, {29 * time.Second, unknown(5), false}, {30 * time.Second, unknown(5), true}},
		"not known, and grows":   {{0, unknown(5), false}, {29 * time.Second, unknown(6), false}, {58 * time.Second, unknown(6), false}, {59 * time.Second, unknown(6), true}},
		"another in its place":   {{0, size(5), false}, {time.Second, Look{SizeBytes: 5, Inode: 8}, false}, {2 * time.Second, Look{SizeBytes: 5, Inode: 8}, true}},
		"an older time":          {{0, size(5), false}, {time.Second, Look{SizeBytes: 5, Inode: 7, ModTimeNanos: -4}, false}},
	} {
		s := Settling{Quiet: DefaultSettle}
		for i, l := range looks {
			settled, wait := s.See("a", l.look, after(l.after))
			require.Equal(t, l.settled, settled, "%s, look %d", name, i)
			require.Equal(t, !settled, wait > 0, "%s, look %d", name, i)
			require.Equal(t, !settled, s.Len() == 1, "%s, look %d", name, i)
		}
		s.Forget("a")
		require.Zero(t, s.Len())
	}
}

// A caller that looks again after wait does so only a few times, and then finds the file settled.
func TestChecksAreScheduledWhenTheyMaySettle(t *testing.T) {
	s, now := Settling{Quiet: NetworkSettle}, time.Unix(5, 0)
	for looks := 1; ; looks++ {
		settled, wait := s.See("a", Look{SizeBytes: 1, Unknown: true}, now)
		if settled {
			require.Equal(t, 2, looks)
			require.Equal(t, NetworkSettle, now.Sub(time.Unix(5, 0)))
			return
		}
		now = now.Add(wait)
	}
}

func TestDamagedFileIsCheckedLessAndLessOften(t *testing.T) {
	at := time.Unix(0, 0)
	l := Look{SizeBytes: 5}
	var d Damaged
	require.True(t, d.See(l, at), "it is told once")
	for _, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		wait := time.Duration(minutes) * time.Minute
		require.False(t, d.Again(l, at.Add(wait-1)))
		require.True(t, d.Again(l, at.Add(wait)))
		at = at.Add(wait)
		require.False(t, d.See(l, at))
	}
	require.True(t, d.Admit(at))
	changed := Look{SizeBytes: 6}
	require.True(t, d.Again(changed, at), "at once when it has changed")
	require.True(t, d.See(changed, at))
	require.False(t, d.Admit(at.Add(AdmitAfter-1)))
	require.True(t, d.Admit(at.Add(AdmitAfter)))
	require.False(t, d.Again(changed, at.Add(time.Minute-1)))
}
