package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// Options select what the doctor examines and where the report goes.
type Options struct {
	IndexDir string
	CacheDir string // of the disk cache; "" skips its check
	Report   bool
	Output   string
	Subject  string // a dataset or a mount for the report; "" for none
}

// level is the outcome's severity.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// Finding is the outcome of one check.
type Finding struct {
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do; "" for nothing
}

// Run checks this machine and prints the findings or, if requested, the report. program is the
// report's information about lsiofs itself.
func Run(ctx context.Context, o Options, program build.Info, u *terminal.UI, log *slog.Logger) error {
	if !o.Report {
		found := examine(thisMachine(o.IndexDir))
		if o.CacheDir != "" {
			found = append(found, checkRoom(lookAtCache(ctx, o.CacheDir, "")))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return reportFindings(found, u)
	}
	r := gatherReport(ctx, o, program, u, log)
	if err := ctx.Err(); err != nil {
		return err
	}
	if u.JSON && o.Output == "-" {
		return u.Emit(r)
	}
	return u.Save(o.Output, []byte(r.markdown()))
}

// reportFindings prints findings and returns an error if one of them is essential.
func reportFindings(found []Finding, u *terminal.UI) error {
	t := &teller{ui: u}
	t.tell(found...)
	return t.end()
}

// teller prints findings as they arrive.
type teller struct {
	ui     *terminal.UI
	failed int
	err    error // from printing
}

func (t *teller) tell(found ...Finding) {
	for _, f := range found {
		if f.Level == levelFail {
			t.failed++
		}
		if t.ui.JSON {
			t.err = errors.Join(t.err, t.ui.Emit(f))
			continue
		}
		_ = t.ui.Printf("%-5s %-16s %s\n", f.Level, f.Check, f.Detail)
		if f.Do != "" {
			_ = t.ui.Printf("%-5s %-16s → %s\n", "", "", f.Do)
		}
	}
}

// end returns an error if an essential check failed, or the error from printing.
func (t *teller) end() error {
	if t.failed > 0 && t.err == nil {
		return exit.Errorf(exit.Check, "%s failed: mounting will not work until this is fixed", terminal.Plural(uint64(t.failed), "check"))
	}
	return t.err
}

// CanMount returns an error that describes what this machine lacks for a mount, or nil.
func CanMount() error { return missingForMount(mountingMachine()) }

// missingForMount returns an error that joins the failed checks that concern mounting, or nil.
func missingForMount(m machine) error {
	var problems []error
	for _, f := range []Finding{checkKernel(m.release), checkFuse(m), checkFusermount(m)} {
		if f.Level == levelFail {
			problems = append(problems, fmt.Errorf("%s: %s: %s", f.Check, f.Detail, f.Do))
		}
	}
	return exit.Join(exit.Check, problems)
}
