package main

import (
	"github.com/spf13/cobra"
)

type doctorOptions struct {
	indexDir string
}

func newDoctorCommand(g *globals) *cobra.Command {
	o := &doctorOptions{}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what of this machine works for lsiofs, and say what to do",
		Long: `Checks kernel, FUSE, io_uring, limits, the cache directory, storage profiles and
mounts that were left behind. ok: works. warn: works, with something lost. fail: mounting or indexing
will not work; the exit code says so too.`,
		Example: `  lsiofs doctor
  lsiofs doctor --json | jq 'select(.level != "ok")'`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return runDoctor(o, g.ui) },
	}
	c.Flags().StringVar(&o.indexDir, "index-dir", "", "the `directory` of indexes to check (default: the user's cache directory)")
	return c
}

// level is how a check came out.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// finding is the outcome of one check.
type finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do; "" where nothing is to be done
}

func runDoctor(o *doctorOptions, u *ui) error {
	return reportFindings(examine(thisMachine(o.indexDir)), u)
}

// reportFindings prints findings, and fails when one of them is essential.
func reportFindings(found []finding, u *ui) error {
	failed := 0
	for _, f := range found {
		if f.Level == levelFail {
			failed++
		}
		if u.json {
			if err := u.emit(f); err != nil {
				return err
			}
			continue
		}
		_ = u.printf("%-5s %-16s %s\n", f.Level, f.Check, f.Detail)
		if f.Do != "" {
			_ = u.printf("%-5s %-16s → %s\n", "", "", f.Do)
		}
	}
	if failed > 0 {
		return codedf(exitCheck, "%s failed: mounting will not work before that is put right", plural(uint64(failed), "check"))
	}
	return nil
}
