package tar_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

func TestKeys(t *testing.T) {
	for path, key := range map[string]string{
		"a/b.c/s1.seg.png": "a/b.c/s1",
		"22.05.png":        "22",
		"s1.":              "s1",
		"./s1.jpg":         "./s1",
		"/s1.jpg":          "/s1",
		"a/__s__.jpg":      "a/__s__",
		"___/s1.jpg":       "___/s1", // three characters
		"__x/s1.jpg":       "__x/s1",
		"":                 "",
		"LICENSE":          "",
		"a.b/LICENSE":      "",
		".hidden.jpg":      "",
		"a/.hidden":        "",
		"a.b/":             "",
		"____/s1.jpg":      "",
		"__meta__/s1.jpg":  "",
		"__s1.jpg__":       "",
	} {
		t.Run(path, func(t *testing.T) {
			records, s, err := index(t, new(archive).file(path, "data").end())
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			if key == "" {
				require.Empty(t, records)
				return
			}
			require.Len(t, records, 1)
			require.Equal(t, xxh3.HashString(key), records[0].KeyHash)
		})
	}
}

func TestRegularTypesAreEligible(t *testing.T) {
	for kind := range 256 {
		if k := byte(kind); k == 'x' || k == 'X' || k == 'g' || k == 'L' || k == 'K' || k == 'S' {
			continue
		}
		h := header(byte(kind), "s1.jpg", 600)
		var a archive
		if kind >= '1' && kind <= '6' {
			a.add(h, "") // no data, whatever the size is
		} else {
			a.add(h, string(make([]byte, 600)))
		}
		records, s, err := index(t, a.file("s2.jpg", "").end())
		require.NoError(t, err)
		require.Nil(t, s.Damage, "type %d", kind)
		want := 1
		if kind == '0' || kind == 0 || kind == '7' {
			want = 2
		}
		require.Len(t, records, want, "type %d", kind)
	}
}
