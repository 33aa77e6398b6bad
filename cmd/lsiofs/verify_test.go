package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

func TestVerifyAcceptsIntactDataset(t *testing.T) {
	data := dataset(t)
	var v verifyReport
	r := ok(t, "verify", data, "--order", "--workers", "3", "--json")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	require.Empty(t, v.Findings)
	require.NotNil(t, v.Findings, "a list, for scripts")
	require.Equal(t, "tar", v.Format)
	require.NotZero(t, v.Records)
	require.True(t, v.Order.Holds())
	require.Len(t, v.Order.Mixing, 3)
	require.Equal(t, v.Records, v.Order.Claims[1].Records)

	r = ok(t, "verify", data, "--order")
	require.Contains(t, r.stdout, "no damage found")
	require.Contains(t, r.stdout, "every record occurs exactly once in the epoch: holds")
	require.Contains(t, r.stdout, "full permutation")
	require.Contains(t, r.stderr, "checking: ")
}

func TestVerifyListsDamageAndHasItsOwnExitCode(t *testing.T) {
	data := dataset(t)
	ok(t, "index", data)
	shards, err := filepath.Glob(filepath.Join(data, "*.tar"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	before, err := os.Stat(shards[1])
	require.NoError(t, err)
	b, err := os.ReadFile(shards[1])
	require.NoError(t, err)
	b[1] ^= 1 // in the first member's name, which its header's checksum covers
	require.NoError(t, os.WriteFile(shards[1], b, 0o644))
	require.NoError(t, os.Chtimes(shards[1], before.ModTime(), before.ModTime()))

	r := lsiofs(t, "verify", data)
	require.EqualValues(t, exit.Verify, r.code)
	require.Contains(t, r.stdout, filepath.Base(shards[1])+": record 0, offset 0: ")
	require.Contains(t, r.stderr, ": repair or remove the files, or leave out the damaged records: lsiofs index --rebuild --on-corrupt skip")
	// The advice works although the shard's size and time are unchanged.
	require.Contains(t, ok(t, "index", data, "--rebuild", "--on-corrupt", "skip").stdout, "damaged       1 shard\n")
	ok(t, "cat", data, "--on-corrupt", "skip")

	r = lsiofs(t, "verify", data, "--json")
	require.EqualValues(t, exit.Verify, r.code)
	var v verifyReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	require.NotZero(t, v.Total)
	require.Equal(t, filepath.Base(shards[1]), v.Findings[0].Shard)
}

func TestVerifyReportsThatCompressionChecksumsAreChecked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "gz") // its parents are created, too
	makeAt(t, dir, "jsonl", "--gz", "--records", "100", "--bytes", "100")
	require.Contains(t, ok(t, "verify", dir).stdout, "where lines end; lines have no checksum; the checksums of gzip\n")
	require.NotContains(t, ok(t, "verify", dataset(t)).stdout, "the checksums of")
}

// verify lists damage even if no record of the dataset is left, so that no mount could open it.
func TestVerifyListsDamageIfNoRecordIsLeft(t *testing.T) {
	lines, index := t.TempDir(), t.TempDir()
	for _, name := range []string{"a.jsonl.gz", "b.jsonl.gz"} {
		require.NoError(t, os.WriteFile(filepath.Join(lines, name), []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), 0o600))
	}
	array := zarrArray(t)
	require.NoError(t, filepath.WalkDir(filepath.Join(array, "data", "c"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Truncate(path, 1)
	}))
	crops := []string{array, "--format", "zarr", "--crop", "time=4,y=16,x=16"}
	for name, c := range map[string]struct {
		flags []string
		shard string
		first string
		total uint64
	}{
		"lines":     {[]string{lines}, "a.jsonl.gz", "the file ends inside a gzip member", 2},
		"one file":  {[]string{filepath.Join(lines, "b.jsonl.gz")}, "b.jsonl.gz", "the file ends inside a gzip member", 1},
		"order":     {[]string{lines, "--order"}, "a.jsonl.gz", "the file ends inside a gzip member", 2},
		"crops":     {crops, "sat.zarr", "data/c/0/0/0: ", 60},
		"a mixture": {[]string{"--mix", "a=1:" + lines, "--mix", "b=1:" + dataset(t)}, "a/a.jsonl.gz", "the file ends inside a gzip member", 2},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"verify", "--index-dir", index}, c.flags...)
			r := lsiofs(t, args...)
			require.EqualValues(t, exit.Verify, r.code, r.stderr)
			require.Contains(t, r.stdout, c.shard+": ")
			require.Contains(t, r.stdout, c.first)
			require.Contains(t, r.stdout, fmt.Sprintf("%d place", c.total))
			require.Contains(t, r.stderr, "nothing is left without the damage")
			require.NotContains(t, r.stderr, "--on-corrupt", "it would leave out everything")
			require.Equal(t, name == "a mixture", strings.Contains(r.stderr, "the other sources were not read"))
			r = lsiofs(t, append(args, "--json")...)
			require.EqualValues(t, exit.Verify, r.code)
			var v verifyReport
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
			require.Equal(t, c.total, v.Total)
			require.Equal(t, c.shard, v.Findings[0].Shard)
			require.Contains(t, v.Findings[0].Reason, c.first)
			require.NotNil(t, v.Unread, "a list, for scripts")
		})
	}
}

// A mixture is verified whether or not it has a length, because no epoch of it is read.
func TestVerifyOfMixtureNeedsNoLength(t *testing.T) {
	small, damaged := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(small, "a.jsonl"), []byte("1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(damaged, "a.jsonl"), []byte("1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(damaged, "b.jsonl.gz"), []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), 0o600))
	mix := func(other string) []string {
		return []string{"--index-dir", t.TempDir(), "--mix", "a=1:" + small, "--mix", "b=9:" + other}
	}
	require.Contains(t, lsiofs(t, append([]string{"cat"}, mix(small)...)...).stderr, "--mix-length", "the sources have no length of their own")
	require.Contains(t, ok(t, append([]string{"verify"}, mix(small)...)...).stdout, "no damage found")
	ok(t, append([]string{"verify", "--mix-length", "all"}, mix(small)...)...)
	r := lsiofs(t, append([]string{"verify"}, mix(damaged)...)...)
	require.EqualValues(t, exit.Verify, r.code, r.stderr)
	require.Contains(t, r.stdout, "b/b.jsonl.gz: record 0, offset 0")
}

// Unreadable shards are not damage: the exit code differs, and there is no advice to leave them
// out. Damage in other shards is still listed.
func TestUnreadableShardsAreNotReportedAsDamage(t *testing.T) {
	unread := []verify.Unread{{Shard: "part-2.tar", Reason: "permission denied"}}
	finding := []verify.Finding{{Shard: "part-3.tar", Record: 1, OffsetBytes: -1, RawOffset: -1, Reason: "checksum"}}
	for name, c := range map[string]struct {
		report verify.Report
		code   exit.Code
		found  string
	}{
		"sound":   {verify.Report{}, exit.OK, "no damage found\n"},
		"damaged": {verify.Report{Findings: finding, Total: 1}, exit.Verify, "1 place damaged\n"},
		"unread":  {verify.Report{Unread: unread}, exit.Dataset, "no damage in the shards that could be read\n"},
		"both":    {verify.Report{Unread: unread, Findings: finding, Total: 1}, exit.Dataset, "1 place damaged\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := verifyReport{Dataset: "/data", Format: "tar", Report: c.report, Seconds: 1}
			var out bytes.Buffer
			require.NoError(t, r.print(&terminal.UI{Out: &out}))
			require.Contains(t, out.String(), c.found)
			err := r.verdict()
			require.Equal(t, c.code, exit.CodeOf(err))
			if len(c.report.Unread) > 0 {
				require.Contains(t, out.String(), "part-2.tar: could not be read: permission denied\n")
				require.ErrorContains(t, err, "part-2.tar: permission denied")
				require.NotContains(t, err.Error(), "--on-corrupt")
				require.NotContains(t, err.Error(), "repair")
			}
			if c.report.Total > 0 {
				require.Contains(t, out.String(), "part-3.tar: record 1: checksum\n")
				require.ErrorContains(t, err, "1 place")
			}
		})
	}
}
