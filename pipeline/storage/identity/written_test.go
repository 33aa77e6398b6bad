package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileIsBeingWrittenWhileOpenForWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := os.Create(path)
	require.NoError(t, err)
	written, unknown := Written(path)
	require.True(t, written != unknown, "it is, or it can't be told here")
	require.NoError(t, f.Close())
	again, _ := Written(path)
	require.False(t, again)
	_, unknown = Written(path + " is not there")
	require.True(t, unknown)
}
