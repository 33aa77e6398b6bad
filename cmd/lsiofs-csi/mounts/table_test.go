package mounts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelMountTableIsParsed(t *testing.T) {
	table, err := parse(strings.NewReader(`22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/root rw
42 22 0:39 / /state/servers/k/mnt rw,nosuid,nodev shared:2 master:1 - fuse.lsiofs lsiofs rw,allow_other
43 22 0:39 / /pods/a\040b/mount ro,nosuid,nodev - fuse.lsiofs lsiofs rw,allow_other
44 22 0:40 / /pods/a\040b/mount rw - tmpfs tmpfs ro
a line of no mount
45 22 0:41 / /state2/mnt rw - fuse.lsiofs lsiofs rw
`))
	require.NoError(t, err)
	require.Len(t, table, 5)
	require.Equal(t, []Mount{
		{Point: "/pods/a b/mount", Device: "0:39", Type: FileSystem, ReadOnly: true},
		{Point: "/pods/a b/mount", Device: "0:40", Type: "tmpfs"},
	}, table.At("/pods/a b/mount"))
	require.Equal(t, []string{"/state/servers/k/mnt"}, table.Below("/state"))
	require.Empty(t, table.At("/nowhere"))
}
