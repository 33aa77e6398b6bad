package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShellWords(t *testing.T) {
	require.Equal(t, "/mnt/a-1.x", Quote("/mnt/a-1.x"))
	require.Equal(t, "'/mnt/a b'", Quote("/mnt/a b"))
	require.Equal(t, `'it'\''s'`, Quote("it's"))
	require.Equal(t, "''", Quote(""))
}
