package formats

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoExtensionImpliesTwoThings(t *testing.T) {
	var seen []string
	add := func(extension string) {
		require.Equal(t, strings.ToLower(extension), extension)
		for _, s := range seen {
			require.False(t, strings.HasSuffix(s, extension) || strings.HasSuffix(extension, s), "%s and %s", s, extension)
		}
		seen = append(seen, extension)
	}
	for i := range all {
		for _, e := range all[i].extensions {
			add(e)
		}
	}
	for i := range codecs {
		for _, e := range codecs[i].endings {
			add(e.text)
		}
	}
}

func TestCodecsHaveTheNamesOfTheTable(t *testing.T) {
	for i := range codecs {
		require.Equal(t, codecs[i].name, codecs[i].codec.Name())
		require.Equal(t, codecs[i].codec, namedCodec(codecs[i].name))
		require.Equal(t, codecs[i].name, nameOf(codecs[i].codec))
	}
}
