package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

func TestDoctorJSONHasOneObjectPerLine(t *testing.T) {
	r := lsiofs(t, "doctor", "--json", "--index-dir", t.TempDir())
	require.Contains(t, []exit.Code{exit.OK, exit.Check}, r.code)
	checks := map[string]bool{}
	for line := range strings.Lines(r.stdout) {
		var f doctor.Finding
		require.NoError(t, json.Unmarshal([]byte(line), &f), line)
		checks[f.Check] = true
	}
	for _, c := range []string{"kernel", "FUSE", "fusermount3", "io_uring", "index directory", "mounts"} {
		require.True(t, checks[c], c)
	}
}
