package spec

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCropFlagValues checks the parsers of --crop, --stride, --step, --select, --scale, --offset
// and --array: a parsed value, formatted and parsed again, is the same.
func FuzzCropFlagValues(f *testing.F) {
	for _, seed := range []string{
		"time=24,y=128", "24,128", "x=0:70000", "x=5:", "x=:5", "channel=3,5,7", "0.01", "sat=0.01,hrv=-2e3", "t=2m_temperature,wind/speed", "a=b=c",
		"9223372036854775807", "x=9223372036854775808:", "=,:", "nan", "0x1p-2", "+1", "a=1,a=2", "x=1_0", "\x00=1", "é=1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := ParseDims(text); err == nil {
			var parts []string
			for _, v := range list {
				require.Positive(t, v.Value)
				part := strconv.FormatInt(v.Value, 10)
				if v.Dim != "" {
					part = v.Dim + "=" + part
				}
				parts = append(parts, part)
			}
			require.LessOrEqual(t, len(list), maxDims)
			again, err := ParseDims(strings.Join(parts, ","))
			require.NoError(t, err)
			require.Equal(t, list, again)
		}
		if s, err := ParseSelection(text); err == nil {
			require.NotEmpty(t, s.Dim)
			what := strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Places), " ", ","), "[]")
			if s.Places == nil {
				require.True(t, s.Begin >= 0 && (s.End == -1 || s.End > s.Begin), "%v", s)
				what = strings.TrimSuffix(fmt.Sprintf("%d:%d", s.Begin, s.End), "-1")
			}
			again, err := ParseSelection(s.Dim + "=" + what)
			require.NoError(t, err)
			require.Equal(t, s, again)
			for _, n := range s.Places {
				require.GreaterOrEqual(t, n, int64(0))
			}
		}
		if list, err := ParseFieldNumbers(text); err == nil {
			var parts []string
			for _, n := range list {
				part := strconv.FormatFloat(n.Value, 'g', -1, 64)
				if n.Field != "" {
					part = n.Field + "=" + part
				}
				parts = append(parts, part)
			}
			again, err := ParseFieldNumbers(strings.Join(parts, ","))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(list), fmt.Sprint(again)) // NaN is not equal to itself
		}
		if list, err := ParseFields(text); err == nil {
			for _, a := range list {
				require.NotEmpty(t, a.Pattern)
				_ = NameOf(a)
			}
		}
	})
}
