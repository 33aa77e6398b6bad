package doctor

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// planted is part of names that must not appear in a report.
const planted = "zqxjplanted"

func TestRedactorPassesWhatIsLsiofssOwn(t *testing.T) {
	for in, want := range map[string]string{
		"tar: /data/x/secret-003.tar: record 17 at [1048576, 1052672): crc32c mismatch": "tar: … record 17 at [1048576, 1052672): crc32c …",
		"no shard is compressed, and the dataset fits in memory":                        "no shard is compressed, and the dataset fits in memory",
		"read Zqx Jones 12345: input/output error":                                      "read … error",
		"record 0 at offset 512 (compressed member at byte 7 of the file): cut":         "record 0 at offset 512 (compressed member at byte 7 of the file): …",
		"1052672) 77": told,
		"":            "",
		"readers wait for the disk 71 % of the time: 1.9 GiB/s, Zqx 9 8 %": "readers wait for the disk 71 % of the time: 1.9 GiB/s, … 8 %",
		"permission denied": "permission denied",
	} {
		v := newRedactor()
		require.Equal(t, want, v.text(in))
		require.Equal(t, strings.Contains(want, told), v.cut == 1)
	}
}

func TestRedactorOfAMachine(t *testing.T) {
	v := newRedactor()
	v.secrets = append(v.secrets, planted)
	m := goodMachine()
	m.release = "6.18.1-" + planted
	m.indexDir = "/home/" + planted
	m.indexDirErr = &iofs.PathError{Op: "mkdir", Path: "/home/" + planted, Err: iofs.ErrPermission}
	m.fusermount = "/home/" + planted + "/fusermount3"
	m.fuse = fmt.Errorf("%s: %w", planted, iofs.ErrNotExist)
	m.mounts = []leftMount{{"/mnt/" + planted, errors.New("no answer from " + planted)}, {"/mnt/b" + planted, nil}}
	m.profiles = []filesystem.ListedProfile{
		{Stored: filesystem.StoredProfile{Place: filesystem.Place{Kind: storage.KindNetwork, Device: planted + ":/export", FileSystem: "nfs4", Identity: planted}, Profile: storage.DefaultProfile(storage.KindNetwork)}},
		{File: "/home/" + planted + "/storage.json", Problem: errors.New(planted)},
	}
	found := fmt.Sprintf("%+v", examine(m.redacted(v)))
	require.NotContains(t, found, planted)
	for _, want := range []string{"6.18.1-…", "/dev/fuse does not exist", "mkdir …: permission denied", "umount --lazy MNT", "MNT-2 answers", "DEVICE (nfs4)", "rm PROFILE"} {
		require.Contains(t, found, want)
	}
	require.Contains(t, fmt.Sprintf("%+v", m), planted, "the machine itself is as it was")
}
