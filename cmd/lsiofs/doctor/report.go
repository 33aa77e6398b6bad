package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Report is what doctor --report gathers. Every string in it is lsiofs's own, a kind of hardware or
// system, or has passed through a redactor. Private, at the top, explains that.
type Report struct {
	Private  [][2]string    `json:"private"`
	Build    build.Info     `json:"build"`
	Machine  machineFacts   `json:"machine"`
	Checks   []Finding      `json:"checks"`
	Dataset  *datasetFacts  `json:"dataset,omitempty"`
	Mount    map[string]any `json:"mount,omitempty"` // status.json and dataset.json
	Problems []string       `json:"problems"`        // why something is missing here
}

// datasetFacts are a dataset's counts and sizes.
type datasetFacts struct {
	Format           string            `json:"format"`
	Codecs           map[string]int    `json:"codecs"` // shards by codec; "none" for uncompressed
	Fingerprint      string            `json:"fingerprint"`
	Shards           int               `json:"shards"`
	ShardBytes       inspect.Spread    `json:"shard_bytes"`
	FilesPassedOver  int               `json:"files_passed_over"`
	Records          uint64            `json:"records"`
	EntryPoints      uint64            `json:"entry_points"`
	RawBytes         int64             `json:"raw_bytes"`
	DecodedBytes     int64             `json:"decoded_bytes"`
	StreamBytes      int64             `json:"stream_bytes"`
	RecordBytes      inspect.Spread    `json:"record_bytes"`
	Histogram        []inspect.Bucket  `json:"record_bytes_histogram"`
	Chunks           uint64            `json:"chunks"`
	ChunkBytes       inspect.Spread    `json:"chunk_bytes"`
	DamagedShards    int               `json:"damaged_shards"`
	DamagesByReason  map[string]uint64 `json:"damages_by_reason,omitempty"`
	Storage          string            `json:"storage"`
	MixingOfDefaults inspect.Mixing    `json:"mixing_of_defaults"`
}

// reportPatience is how long a mount may take to return a file. Status takes locks of the server,
// so this is more than mountPatience.
const reportPatience = 10 * time.Second

// gatherReport examines the machine, and the dataset or mount that the subject names, if any.
// Failures are listed as problems, because a report is most needed when something does not work.
func gatherReport(ctx context.Context, o Options, program build.Info, u *terminal.UI, log *slog.Logger) Report {
	subject := o.Subject
	v := newRedactor()
	r := Report{Build: program, Problems: []string{}}
	if info, ok := debug.ReadBuildInfo(); ok {
		r.Build.Dependencies = build.Dependencies(info)
	}
	if subject != "" {
		kind := "DATASET"
		mounted := isMount(subject)
		if mounted {
			kind = "MNT"
		}
		if absolute, err := filepath.Abs(subject); err == nil {
			v.standIn(kind, absolute)
		}
		var err error
		if mounted {
			r.Mount, err = mountFacts(subject, v)
		} else {
			r.Dataset, err = gatherDataset(ctx, u, log, o, v)
		}
		if err != nil {
			r.Problems = append(r.Problems, kind+": "+v.text(err.Error()))
		}
	}
	m := thisMachine(o.IndexDir)
	r.Machine = thisMachinesFacts(v)
	r.Checks = examine(m.redacted(v))
	r.Private = v.told(r)
	return r
}

// isMount reports whether a path is a mount point of lsiofs. It does not touch a mount that is
// named by its own path, because a hanging server would block it.
func isMount(path string) bool {
	mounts, err := fs.Mounts()
	if err != nil {
		return false
	}
	is := func(path string, err error) bool {
		return err == nil && slices.ContainsFunc(mounts, func(m fs.MountEntry) bool {
			return m.Type == fs.FileSystemType && m.Point == path
		})
	}
	absolute, err := filepath.Abs(path)
	return is(absolute, err) || is(filepath.EvalSymlinks(absolute))
}

// mountFacts returns a mount's own documents, redacted.
func mountFacts(mnt string, v *redactor) (map[string]any, error) {
	facts := map[string]any{}
	for _, name := range []string{"status.json", "dataset.json"} {
		type answer struct {
			doc []byte
			err error
		}
		answers := make(chan answer, 1)
		// Ends with the read or, if the server hangs, with the process.
		go func() { doc, err := os.ReadFile(filepath.Join(mnt, name)); answers <- answer{doc, err} }()
		select {
		case a := <-answers:
			if a.err != nil {
				return facts, a.err
			}
			var tree any
			d := json.NewDecoder(strings.NewReader(string(a.doc)))
			d.UseNumber()
			if err := d.Decode(&tree); err != nil {
				return facts, err
			}
			facts[strings.TrimSuffix(name, ".json")] = v.tree("", tree)
		case <-time.After(reportPatience):
			return facts, fmt.Errorf("no answer within %v", reportPatience)
		}
	}
	return facts, nil
}

// gatherDataset opens a dataset with default settings, as inspect does.
func gatherDataset(ctx context.Context, u *terminal.UI, log *slog.Logger, o Options, v *redactor) (*datasetFacts, error) {
	s := spec.Default()
	s.Dataset, s.IndexDir = o.Subject, o.IndexDir
	s.OnCorrupt = spec.CorruptSkip // so that damage is counted
	d, err := opening.OpenShowing(ctx, u, log, s, pipeline.Options{})
	if err != nil {
		return nil, err
	}
	facts, err := factsOf(ctx, d, v)
	return facts, opening.Close(d, err, log)
}

func factsOf(ctx context.Context, d *pipeline.Dataset, v *redactor) (*datasetFacts, error) {
	i, err := inspect.Dataset(ctx, d)
	if err != nil {
		return nil, err
	}
	f := &datasetFacts{
		Format: i.Format, Codecs: map[string]int{}, Fingerprint: i.Fingerprint, Shards: i.Shards, FilesPassedOver: i.PassedOver,
		Records: i.Records, EntryPoints: i.EntryPoints, RawBytes: i.RawBytes, DecodedBytes: i.DecodedBytes, StreamBytes: i.StreamBytes,
		RecordBytes: i.RecordBytes, Histogram: i.Histogram, Chunks: i.Chunks, ChunkBytes: i.ChunkBytes,
		DamagedShards: len(i.Damaged), Storage: i.Storage.String(), MixingOfDefaults: i.Mixing,
	}
	c := d.Catalog()
	for n := range c.Shards() {
		s := c.Shard(n)
		f.ShardBytes.Add(s.Object.SizeBytes)
		codec := "none"
		if s.Codec != nil {
			codec = s.Codec.Name()
		}
		f.Codecs[codec]++
	}
	for text, n := range i.Damages {
		if f.DamagesByReason == nil {
			f.DamagesByReason = map[string]uint64{}
		}
		f.DamagesByReason[v.text(text)] += n
	}
	return f, nil
}

// markdown formats the report as text to paste into an issue.
func (r Report) markdown() string {
	var b strings.Builder
	b.WriteString("## Report of lsiofs doctor\n\nWhat is private, and whether this report contains it:\n\n| | |\n|---|---|\n")
	for _, row := range r.Private {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	modified := ""
	if r.Build.Modified {
		modified = " (modified)"
	}
	m := r.Machine
	b.WriteString("\n| lsiofs | |\n|---|---|\n")
	for _, row := range append([][2]string{
		{"version", r.Build.Version + ", " + r.Build.Platform + ", " + r.Build.Go},
		{"commit", r.Build.Commit + modified},
	}, m.rows()...) {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	b.WriteString("\n```\n")
	for _, f := range r.Checks {
		fmt.Fprintf(&b, "%-5s %-16s %s\n", f.Level, f.Check, f.Detail)
	}
	b.WriteString("```\n")
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\nNot checked: %s\n", p)
	}
	block := func(title string, x any) {
		doc, err := json.MarshalIndent(x, "", " ")
		if err != nil {
			doc = []byte(err.Error())
		}
		fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n```json\n%s\n```\n\n</details>\n", title, doc)
	}
	if r.Dataset != nil {
		d := r.Dataset
		fmt.Fprintf(&b, "\nDATASET: %s of %s in %s, %s on storage, %s in streams.\n", terminal.Plural(d.Records, "record"), d.Format,
			terminal.Plural(uint64(d.Shards), "shard"), terminal.Bytes(d.RawBytes), terminal.Bytes(d.StreamBytes))
		block("DATASET", d)
	}
	if r.Mount != nil {
		block("MNT", r.Mount)
	}
	var modules []string
	for _, d := range r.Build.Dependencies {
		modules = append(modules, d.Module+" "+d.Version)
	}
	block("modules", modules)
	return b.String()
}
