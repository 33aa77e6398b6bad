package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
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

// planted is in every name that must not appear in a report, and plantedNumber is one of their
// words. It is too long for a time, size or fingerprint to contain it by chance.
const (
	planted       = "zqxjplanted"
	plantedNumber = "4711081547110815471"
)

// plantedDataset returns a dataset with planted in the names of its directory, shards and records,
// and in the records. One of its shards is damaged.
func plantedDataset(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), planted+"-dataset")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for shard := range 4 {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range 50 {
			data := []byte(planted + " in the record")
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s-key-%d.txt", planted, i), Size: int64(len(data)), Mode: 0o644}))
			_, err := w.Write(data)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		doc := b.Bytes()
		if shard == 3 {
			doc[10*1024+3] ^= 1 // a member's header no longer matches its checksum
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-shard %d %s %s.tar", planted, shard, plantedNumber, plantedNumber)), doc, 0o644))
	}
	return dir
}

// reportOf runs the program with planted names in its environment and, as root, on a machine of
// that name. It checks that the report has none of them.
func reportOf(t *testing.T, args ...string) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), planted+"-home")
	require.NoError(t, os.Mkdir(home, 0o755))
	c := program(t, append([]string{"doctor", "--report"}, args...)...)
	c.Env = append(c.Environ(), "HOME="+home, "USER="+planted, "LOGNAME="+planted, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "SECRET_TOKEN="+planted+"-token")
	if os.Geteuid() == 0 {
		c.Env = append(c.Env, asHost+"="+planted+"-host")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	require.NoError(t, c.Run(), "%s", stderr.String())
	report := stdout.String()
	require.NotContains(t, strings.ToLower(report), planted)
	require.NotContains(t, report, plantedNumber, "a number in a name")
	require.NotContains(t, report, filepath.Join(os.TempDir(), "Test"))
	// The machine's own name, unless it is a word that reports contain anyway.
	host, err := os.Hostname()
	require.NoError(t, err)
	if len(host) >= 4 && !strings.Contains(read(t, "doctor", "words.txt")+" lsiofs", strings.ToLower(host)) {
		require.NotContains(t, report, host)
	}
	return report
}

func TestAReportOfTheMachineAlone(t *testing.T) {
	report := reportOf(t)
	require.True(t, strings.HasPrefix(report, "## Report of lsiofs doctor\n\nWhat is private, and whether this report contains it:\n"), report)
	for _, want := range []string{"| kernel |", "| memory |", "| processors |", "| control groups |", "index directory", "INDEX-DIR is writable", "github.com/spf13/cobra"} {
		require.Contains(t, report, want)
	}
	require.NotContains(t, report, "<summary>DATASET")
}

func TestAReportOfADatasetHasCountsAndNoNames(t *testing.T) {
	data := plantedDataset(t)
	report := reportOf(t, data)
	for _, want := range []string{`"format": "tar"`, `"none": 4`, `"shards": 4`, `"damaged_shards": 1`, "damages_by_reason", "checksum", "fingerprint"} {
		require.Contains(t, report, want)
	}
	var i inspect.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, "inspect", data, "--on-corrupt", "skip", "--json").stdout), &i))
	var r doctor.Report
	require.NoError(t, json.Unmarshal([]byte(reportOf(t, "--json", data)), &r))
	require.Equal(t, i.Records, r.Dataset.Records)
	require.Equal(t, i.Histogram, r.Dataset.Histogram)
	require.Equal(t, i.Fingerprint, r.Dataset.Fingerprint)
	require.NotEmpty(t, r.Private)
	require.Empty(t, r.Problems)
}

func TestAReportOfWhatCanNotBeOpenedSaysWhy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), planted)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, planted+".unknown"), []byte(planted), 0o644))
	require.Contains(t, reportOf(t, dir), "\nNot checked: DATASET: ")
	require.Contains(t, reportOf(t, filepath.Join(dir, "nothing")), "does not exist: name a directory")
}

func TestAReportOfAMountHasItsStatusAndNoNames(t *testing.T) {
	needMount(t)
	data := plantedDataset(t)
	mnt, _ := daemon(t, data, "--on-corrupt", "skip", "--workers", "2", "--direct", "on")
	shards, err := filepath.Glob(filepath.Join(data, "*.tar"))
	require.NoError(t, err)
	for _, shard := range shards { // reads of them fail, and status reports that
		require.NoError(t, os.WriteFile(shard, nil, 0o644))
	}
	_, err = os.ReadFile(filepath.Join(mnt, "worker-0.tar"))
	require.Error(t, err)
	require.Contains(t, read(t, mnt, "status.json"), planted, "the mount itself names them")

	var r struct {
		Mount map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(reportOf(t, "--json", mnt)), &r))
	status, described := r.Mount["status"], r.Mount["dataset"]
	require.Equal(t, "MNT", status["mount_point"])
	require.Equal(t, "DATASET", status["dataset"])
	require.Equal(t, "DATASET", described["root"])
	require.EqualValues(t, 2, status["workers"])
	require.Len(t, status["files"], 2)
	require.NotEmpty(t, status["last_errors"])
	require.Contains(t, fmt.Sprint(status["last_errors"], status["pipeline"]), "changed since it was indexed")
	requireKnownKeys(t, status)
	requireKnownKeys(t, described)
}

// requireKnownKeys fails if a mount has a field whose words are not in doctor/words.txt: reports
// would lack them.
func requireKnownKeys(t *testing.T, x any) {
	t.Helper()
	switch x := x.(type) {
	case map[string]any:
		for k, value := range x {
			if !strings.Contains(k, " ") { // a reason
				require.NotContainsf(t, k, "…", "put the words of this field into doctor/words.txt: %v", value)
			}
			requireKnownKeys(t, value)
		}
	case []any:
		for _, value := range x {
			requireKnownKeys(t, value)
		}
	}
}

func TestReportIsWrittenCompletelyToFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.md")
	r := ok(t, "doctor", "--report", "-o", file, "--index-dir", t.TempDir())
	require.Empty(t, r.stdout)
	require.Contains(t, read(t, file), "Report of lsiofs doctor")
	r = lsiofs(t, "doctor", "/somewhere")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "with --report a DATASET or MNT")
}
