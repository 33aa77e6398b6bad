package mounting

import (
	"fmt"
	"path/filepath"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Info describes a ready mount.
type Info struct {
	Mount   string `json:"mounted"`
	MountID string `json:"mount_id"` // see fs.Mount.Identity
	Dataset string `json:"dataset"`
	Split   string `json:"split,omitempty"` // as text
	Sample  string `json:"sample,omitempty"`
	Records uint64 `json:"records"`      // after split and sample
	As      string `json:"as,omitempty"` // what streams contain of records, if not their bytes
	Shards  int    `json:"shards"`
	// Taken describes the files that are shards, LeftOut those that are not.
	Taken        string   `json:"taken,omitempty"`
	LeftOut      string   `json:"left_out,omitempty"`
	FilesLeftOut int      `json:"files_left_out"`
	Bytes        int64    `json:"stream_bytes"`
	Epoch        uint64   `json:"epoch"`
	RunDir       string   `json:"run_directory,omitempty"` // of a growing dataset
	Left         uint64   `json:"records_left"`
	Workers      uint64   `json:"workers"`
	Memory       int64    `json:"memory_bytes"` // --memory
	Files        []string `json:"files"`        // the first ones; see namedFiles
	// How records are read and why, and what the first bytes wait for.
	Strategy     string  `json:"read"`
	Reason       string  `json:"read_reason"`
	Start        string  `json:"start,omitempty"`
	StartSeconds float64 `json:"start_seconds"`
	LogFile      string  `json:"log_file,omitempty"`
	PID          int     `json:"pid,omitempty"`
	detached     bool
}

// namedFiles bounds Info.Files: there may be 65536.
const namedFiles = 64

func describeMount(d *pipeline.Dataset, point string, epoch, left uint64, start pipeline.Start) Info {
	f := d.Status().Fetch
	s, c := d.Spec(), d.Catalog()
	i := Info{
		Mount: point, Dataset: s.Dataset, Records: d.Records(), As: string(s.Format.As), Shards: c.Shards(), Bytes: d.StreamBytes(),
		Epoch: epoch, Left: left, Workers: s.Deal.Workers, Memory: s.MemoryBytes,
		Strategy: f.Strategy, Reason: f.Reason, Start: start.Text(), StartSeconds: start.Seconds,
	}
	if lines := opening.SelectionLines(c); len(lines) > 0 {
		i.Taken, i.FilesLeftOut = lines[0], c.PassedOver()
		if len(lines) > 1 {
			i.LeftOut = lines[1]
		}
	}
	if s.Order.Split != (spec.Split{}) {
		i.Split = inspect.SplitText(s.Order.Split)
	}
	if s.Order.Sample != (spec.Subsample{}) {
		i.Sample = s.Order.Sample.String()
	}
	if g := d.Status().Growing; g != nil {
		i.RunDir = g.RunDir
	}
	for w := range min(s.Deal.Workers, namedFiles) {
		i.Files = append(i.Files, filepath.Join(point, fmt.Sprintf("worker-%d%s", w, d.StreamExtension())))
	}
	return i
}

// sentence describes the mount.
func (i Info) sentence() string {
	records := terminal.Plural(i.Records, "record")
	if i.Split != "" {
		records += " (split " + i.Split + ")"
	}
	if i.Sample != "" {
		records += " (sample " + i.Sample + ", different in each epoch)"
	}
	if i.As != "" {
		records += " as " + i.As
	}
	epoch := fmt.Sprintf("epoch %d", i.Epoch)
	if i.RunDir != "" {
		epoch += " of the run in " + i.RunDir
	}
	return fmt.Sprintf("mounted %s on %s: %s in %s, %s; %s, %s to read",
		i.Dataset, i.Mount, records, terminal.Plural(uint64(i.Shards), "shard"), terminal.Bytes(i.Bytes), epoch, terminal.Plural(i.Left, "record"))
}

// text describes the mount and suggests what to type next.
func (i Info) text() string {
	files := i.Files[0]
	if last := i.Workers - 1; last > 0 {
		files += " … worker-" + fmt.Sprint(last) + filepath.Ext(i.Files[0])
	}
	at := terminal.Quote(i.Mount)
	stop := "or Ctrl-C here"
	if i.detached {
		stop = fmt.Sprintf("the server is process %d, its log is %s", i.PID, i.LogFile)
	}
	chosen := ""
	for _, line := range []string{i.Taken, i.LeftOut} {
		if line != "" {
			chosen += "\n  " + line
		}
	}
	start := ""
	if i.StartSeconds >= 1 {
		start = "\n  start    " + i.Start
	}
	return fmt.Sprintf(`%s
  read     %s
  look     ls -l %s; cat %s/README
  save     cp %s/epoch-%d/from-M/checkpoint ckpt.json   (after M records)
  unmount  lsiofs umount %s   (%s)
  fetch    %s (%s), with --memory %s%s`,
		i.sentence()+chosen,
		files, at, at, at, i.Epoch, at, stop, i.Strategy, i.Reason, terminal.Size(uint64(i.Memory)), start)
}
