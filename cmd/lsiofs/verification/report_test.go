package verification

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

// Unreadable shards are not damage: the exit code differs, and there is no advice to leave them
// out. Damage in other shards is still listed.
func TestUnreadableShardsAreNotReportedAsDamage(t *testing.T) {
	unread := []verify.Unread{{Shard: "part-2.tar", Reason: "permission denied"}}
	finding := []verify.Finding{{Shard: "part-3.tar", Record: 1, OffsetBytes: -1, RawOffset: -1, Reason: "checksum"}}
	for name, c := range map[string]struct {
		report verify.Report
		code   exit.Code
		found  string
	}{
		"sound":   {verify.Report{}, exit.OK, "no damage found\n"},
		"damaged": {verify.Report{Findings: finding, Total: 1}, exit.Verify, "1 place damaged\n"},
		"unread":  {verify.Report{Unread: unread}, exit.Dataset, "no damage in the shards that could be read\n"},
		"both":    {verify.Report{Unread: unread, Findings: finding, Total: 1}, exit.Dataset, "1 place damaged\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Report{Dataset: "/data", Format: "tar", Report: c.report, Seconds: 1}
			var out bytes.Buffer
			require.NoError(t, r.Print(&terminal.UI{Out: &out}))
			require.Contains(t, out.String(), c.found)
			err := r.Verdict()
			require.Equal(t, c.code, exit.CodeOf(err))
			if len(c.report.Unread) > 0 {
				require.Contains(t, out.String(), "part-2.tar: could not be read: permission denied\n")
				require.ErrorContains(t, err, "part-2.tar: permission denied")
				require.NotContains(t, err.Error(), "--on-corrupt")
				require.NotContains(t, err.Error(), "repair")
			}
			if c.report.Total > 0 {
				require.Contains(t, out.String(), "part-3.tar: record 1: checksum\n")
				require.ErrorContains(t, err, "1 place")
			}
		})
	}
}
