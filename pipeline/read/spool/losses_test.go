package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShardDamagedTwiceIsAvoidedForTenMinutes(t *testing.T) {
	var l Losses
	const minute = int64(time.Minute)
	require.False(t, l.Avoids(3, minute))
	require.True(t, l.Add(3, minute), "the first one is told of")
	require.False(t, l.Avoids(3, minute))
	require.False(t, l.Add(3, minute+1), "not twice in a minute")
	require.True(t, l.Avoids(3, minute+1))
	require.False(t, l.Avoids(4, minute+1), "another shard")
	require.True(t, l.Avoids(3, 11*minute))
	require.False(t, l.Avoids(3, 11*minute+1))
	require.True(t, l.Add(3, 12*minute), "told of again")
	require.False(t, l.Avoids(3, 12*minute), "what was is forgotten")
	require.Equal(t, uint64(3), l.Shards)
	l.Add(3, 12*minute)
	require.True(t, l.Avoids(3, 12*minute))
	l.Forget()
	require.False(t, l.Avoids(3, 12*minute))
}
