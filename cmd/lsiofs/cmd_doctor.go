package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/document"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

type doctorOptions struct {
	indexDir string
	report   bool
	output   string
	subject  string // a dataset or a mount, for the report; "" for none
}

func newDoctorCommand(g *globals) *cobra.Command {
	o := &doctorOptions{}
	c := &cobra.Command{
		Use:   "doctor [--report [DATASET|MNT]]",
		Short: "Check what of this machine works for lsiofs, and say what to do",
		Long: `Checks kernel, FUSE, io_uring, limits, the cache directory, storage profiles and
mounts that were left behind. ok: works. warn: works, with something lost. fail: mounting or indexing
will not work; the exit code says so too.

--report gathers what an issue report needs, as a text to paste: version, machine,
limits, checks; of a dataset (which is indexed first where it is not) its format,
counts and sizes; of a mount its status. It begins with what is private, and whether
that is in it: no names of shards, keys, users and hosts are, and no paths.`,
		Example: `  lsiofs doctor
  lsiofs doctor --report /data/train -o report.md
  lsiofs doctor --report /mnt/train
  lsiofs doctor --json | jq 'select(.level != "ok")'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !o.report {
				return exit.Usagef("%s takes no arguments, with --report a DATASET or MNT (see %s --help)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.subject = args[0]
			}
			return runDoctor(c.Context(), o, g)
		},
	}
	c.Flags().BoolVar(&o.report, "report", false, "write a report for an issue, without what is private; exit code 0 whatever it says")
	c.Flags().StringVarP(&o.output, "output", "o", "-", "write the report to this `file`, whole or not at all (- for stdout)")
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

func runDoctor(ctx context.Context, o *doctorOptions, g *globals) error {
	if !o.report {
		return reportFindings(examine(thisMachine(o.indexDir)), g.ui)
	}
	r := gatherReport(ctx, g, o.indexDir, o.subject)
	if err := ctx.Err(); err != nil {
		return err
	}
	if g.ui.JSON && o.output == "-" {
		return g.ui.Emit(r)
	}
	return document.Write(o.output, []byte(r.markdown()), g.ui)
}

// reportFindings prints findings, and fails when one of them is essential.
func reportFindings(found []finding, u *terminal.UI) error {
	failed := 0
	for _, f := range found {
		if f.Level == levelFail {
			failed++
		}
		if u.JSON {
			if err := u.Emit(f); err != nil {
				return err
			}
			continue
		}
		_ = u.Printf("%-5s %-16s %s\n", f.Level, f.Check, f.Detail)
		if f.Do != "" {
			_ = u.Printf("%-5s %-16s → %s\n", "", "", f.Do)
		}
	}
	if failed > 0 {
		return exit.Errorf(exit.Check, "%s failed: mounting will not work before that is put right", terminal.Plural(uint64(failed), "check"))
	}
	return nil
}
