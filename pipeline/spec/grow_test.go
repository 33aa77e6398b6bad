package spec

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGrowingOptionsRequireGrow(t *testing.T) {
	for flag, g := range map[string]Grow{
		"--run": {Run: "/runs/a"}, "--window": {Window: "60shards"}, "--newest": {Newest: NewestMTime}, "--min-new": {MinNew: "5shards"},
		"--settle": {Settle: time.Minute}, "--poll": {Poll: time.Minute}, "--hold": {Hold: true},
	} {
		s := Default()
		s.Dataset, s.Grow = "/data", g
		require.ErrorContains(t, s.Validate(), flag+" needs --grow", flag)
		s.Grow.On = true
		require.NoError(t, s.Validate(), flag)
	}
	s := Default()
	s.Dataset, s.Grow = "/data", Grow{Snapshot: "8f29.gz"}
	require.NoError(t, s.Validate(), "a snapshot can be read without growing")
}

func TestInvalidGrowingOptionsAreExplained(t *testing.T) {
	s := Default()
	s.Dataset, s.Grow = "/data", Grow{On: true, Newest: "size", Settle: -1, Poll: -time.Second}
	err := s.Validate()
	require.ErrorContains(t, err, `--newest ("size") must be one of name, mtime`)
	require.ErrorContains(t, err, "--settle (-1ns) must be above 0")
	require.ErrorContains(t, err, "--poll (-1s) must be above 0")
}
