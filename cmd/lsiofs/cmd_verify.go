package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/verify"
)

type verifyOptions struct {
	datasetFlags
	dataset string
	order   bool
}

func newVerifyCommand(g *globals) *cobra.Command {
	o := &verifyOptions{}
	c := &cobra.Command{
		Use:   "verify DATASET",
		Short: "Read every byte of a dataset and list what is damaged",
		Long: `Reads all shards once, bypassing the page cache (unless --direct is off). It checks all
checksums of the format and the compression, that every record parses, and that
everything matches the index. It lists damage by shard, record and offset, and exits
with code ` + fmt.Sprint(int(exit.Verify)) + ` if there is any. A dataset without an index is indexed first; if no
intact records remain, it lists what indexing has found.

--order also checks the order that the flags describe: that every record comes once,
that records are assigned to workers as specified, and that resuming at random positions
continues with the rest. It also compares how well shards are mixed with what inspect
predicts, with a buffer over shards in random order, and with a full permutation. This
takes about a second per million records. --split affects only this check: shards are
always read whole.`,
		Example: `  lsiofs verify /data/train
  lsiofs verify /data/train --order --seed 42 --workers 8
  lsiofs verify '/data/*.tar.gz' --json | jq .findings`,
		Args: o.arguments("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = o.withDataset(args)[0]
			return runVerify(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addMix(c)
	c.Flags().BoolVar(&o.order, "order", false, "also check the order, and measure how well it mixes shards")
	return c
}

func runVerify(ctx context.Context, o *verifyOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	if o.order && s.Mix.Asked() {
		return exit.Usagef("--order proves that an epoch delivers every record exactly once, which a mixture does not: leave it out, or verify the order of each source")
	}
	s.OnCorrupt = spec.CorruptSkip // list all damage, not only the first
	s.Deal.Tail = spec.TailKeep    // include all records
	if s.Mix.Asked() && s.Order.Length == 0 {
		s.Order.Length = 1 // no epoch is read: sources may be too small to have a length of their own
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{})
	if v, ok := refusedReport(err); ok {
		return conclude(v, g.ui)
	}
	if err != nil {
		return err
	}
	v, err := verifyShards(ctx, d, g.ui)
	if err == nil && o.order {
		err = v.proveOrder(ctx, d, g.ui)
	}
	if err == nil {
		err = conclude(v, g.ui)
	}
	return opening.Close(d, err, g.log())
}

// conclude prints a report and returns its verdict.
func conclude(v verifyReport, u *terminal.UI) error {
	print := v.print
	if u.JSON {
		print = func(u *terminal.UI) error { return u.Emit(v) }
	}
	if err := print(u); err != nil {
		return err
	}
	return v.verdict()
}

// verifyReport is what verify prints.
type verifyReport struct {
	Dataset string `json:"dataset"`
	Format  string `json:"format"`
	Checked string `json:"checked"`
	opening.Selection
	verify.Report
	Seconds        float64               `json:"seconds"`
	BytesPerSecond float64               `json:"bytes_per_second"`
	Order          *verify.OrderReport   `json:"order,omitempty"`
	refused        *storage.DamagedError // why the dataset could not be opened; nil if it could
}

// refusedReport returns the report on a dataset that could not be opened because nothing is left of
// it without its damaged parts. It lists the damage found on the way. ok is false if err has another
// reason.
func refusedReport(err error) (v verifyReport, ok bool) {
	d, ok := errors.AsType[*storage.DamagedError](err)
	if !ok {
		return v, false
	}
	v = verifyReport{Dataset: d.Dataset, Format: d.Format, Checked: formats.Checked(d.Format), refused: d}
	v.Report = verify.Report{Shards: d.Shards, Findings: []verify.Finding{}, Unread: []verify.Unread{}, Total: d.Total}
	for _, x := range d.Damages {
		x.Shard = path.Join(d.Source, x.Shard)
		v.Findings = append(v.Findings, verify.Finding(x))
	}
	return v, true
}

// verifyShards reads all shards of an open dataset, and shows its progress.
func verifyShards(ctx context.Context, d *pipeline.Dataset, u *terminal.UI) (verifyReport, error) {
	view := opening.NewPass(u)
	view.Verb = "verifying"
	defer view.Clear()
	c := d.Catalog()
	v := verifyReport{Dataset: c.Root(), Format: c.Format().Name, Selection: opening.SelectionOf(c.Selection()), Checked: checkedText(d)}
	began := time.Now()
	var err error
	if v.Report, err = d.VerifyShards(ctx, view.Show); err != nil {
		return v, err
	}
	v.Seconds = time.Since(began).Seconds()
	v.BytesPerSecond = float64(v.Bytes) / v.Seconds
	return v, nil
}

// proveOrder checks the order of the dataset's spec, and measures how it mixes shards.
func (v *verifyReport) proveOrder(ctx context.Context, d *pipeline.Dataset, u *terminal.UI) error {
	s := d.Spec()
	predicted, err := inspect.MeasureMixing(ctx, d, quality.Poor)
	if err != nil {
		return err
	}
	r, err := verify.Order(ctx, verify.OrderConfig{
		Order: s.Order, Epoch: s.Epoch, Deal: s.Deal, Predicted: predicted.Global.Value,
		Subject: quality.Subject{ShardStarts: inspect.ShardStarts(d), Part: d.Part(), ChunkStarts: d.ChunkStarts},
		Step:    func(claim string) { u.Notef("checking: %s", claim) },
	})
	if err != nil {
		return err
	}
	v.Order = &r
	return nil
}

// checkedText describes what is checked in d's shards, by the format and by their compression.
func checkedText(d *pipeline.Dataset) string {
	c := d.Catalog()
	text := formats.Checked(c.Format().Name)
	var used []string
	for i := range c.Shards() {
		// A format's text already covers its own codecs.
		if codec := c.Shard(i).Codec; codec != nil && slices.Contains(formats.Codecs(), codec) && !slices.Contains(used, codec.Name()) {
			used = append(used, codec.Name())
		}
	}
	if len(used) == 0 {
		return text
	}
	slices.Sort(used)
	return text + "; the checksums of " + strings.Join(used, ", ")
}

// verdict returns the error that the command ends with, or nil if nothing is wrong.
func (v verifyReport) verdict() error {
	switch {
	case len(v.Unread) > 0:
		return exit.Errorf(exit.Dataset, "%s of %s could not be read, such as %s: %s%s", terminal.Plural(uint64(len(v.Unread)), "shard"), v.Dataset,
			v.Unread[0].Shard, v.Unread[0].Reason, v.besides())
	case v.refused != nil:
		others := ""
		if v.refused.Source != "" {
			others = "; the other sources were not read"
		}
		return exit.Errorf(exit.Verify, "%s damaged in %s, and nothing is left without the damage: repair or replace the files, then verify again%s", terminal.Plural(v.Total, "place"), v.Dataset, others)
	case v.Total > 0:
		return exit.Errorf(exit.Verify, "%s damaged in %s: repair or remove the files%s", terminal.Plural(v.Total, "place"), v.Dataset, v.leavingOut())
	case v.Order != nil && !v.Order.Holds():
		return exit.Errorf(exit.Verify, "the order of %s is wrong: report this as a bug of lsiofs", v.Dataset)
	}
	return nil
}

// besides describes the damage in the parts that could be read.
func (v verifyReport) besides() string {
	if v.Total == 0 {
		return ""
	}
	return "; in addition, " + terminal.Plural(v.Total, "place") + " damaged"
}

// leavingOut describes how mounts can leave out the damage, if they can. If lengths lead from one
// record to the next, an index pass does not read the records' data, and so finds no damage in it.
func (v verifyReport) leavingOut() string {
	if v.Format == "tfrecord" || v.Format == "files" {
		return ""
	}
	return ", or leave out the damaged records: lsiofs index --rebuild --on-corrupt skip, then mount with --on-corrupt skip"
}

// print writes a report for people.
func (v verifyReport) print(u *terminal.UI) error {
	for _, f := range v.Findings {
		_ = u.Printf("%s\n", printable.Line(findingText(f)))
	}
	if more := v.Total - uint64(len(v.Findings)); more > 0 {
		_ = u.Printf("… and %d more\n", more)
	}
	for _, s := range v.Unread {
		_ = u.Printf("%s\n", printable.Line(s.Shard+": could not be read: "+s.Reason))
	}
	found := "no damage found"
	if len(v.Unread) > 0 {
		found = "no damage in the shards that could be read"
	}
	if v.Total > 0 {
		found = terminal.Plural(v.Total, "place") + " damaged"
	}
	read := fmt.Sprintf("%s of %s in %s, %s/s", terminal.Bytes(v.Bytes), terminal.Plural(uint64(v.Shards), "shard"),
		terminal.Round(time.Duration(v.Seconds*float64(time.Second))), terminal.Bytes(int64(v.BytesPerSecond)))
	if v.refused != nil {
		read = terminal.Plural(uint64(v.Shards), "shard") + ", up to the damage"
	}
	err := terminal.Table(u.Out, [][2]string{
		{"dataset", v.Dataset},
		{"read", read},
		{"records", terminal.Count(v.Records)},
		{"checked", v.Checked},
		{"found", found},
	})
	if err != nil || v.Order == nil {
		return err
	}
	fmt.Fprintln(u.Out, "\norder")
	for _, c := range v.Order.Claims {
		verdict := "holds"
		if c.Problem != "" {
			verdict = "DOES NOT HOLD: " + c.Problem
		}
		fmt.Fprintf(u.Out, "  %s: %s\n", c.Name, verdict)
	}
	return printMixing(u, v.Order.Mixing)
}

func printMixing(u *terminal.UI, rows []verify.Mixing) error {
	fmt.Fprintln(u.Out)
	w := tabwriter.NewWriter(u.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "shuffle\tχ²/df of shards in batches of 256\tpredicted\tneighbours from one shard\tif independent")
	for _, r := range rows {
		predicted := ""
		if r.Predicted > 0 {
			predicted = fmt.Sprintf("%.2f", r.Predicted)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%.2f %%\t%.2f %%\n", r.Shuffle, r.Value, predicted, 100*r.Neighbours, 100*r.Independent)
	}
	return w.Flush()
}

// findingText formats a finding as a line: its place, then the reason.
func findingText(f verify.Finding) string {
	var where []string
	if f.Record >= 0 {
		where = append(where, fmt.Sprintf("record %d", f.Record))
	}
	if f.OffsetBytes >= 0 {
		where = append(where, fmt.Sprintf("offset %d", f.OffsetBytes))
	}
	if f.RawOffset >= 0 {
		where = append(where, fmt.Sprintf("compressed member at byte %d of the file", f.RawOffset))
	}
	if where == nil {
		return f.Shard + ": " + f.Reason
	}
	return f.Shard + ": " + strings.Join(where, ", ") + ": " + f.Reason
}
