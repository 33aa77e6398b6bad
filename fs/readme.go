package fs

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// readmeText is README, with placeholders in {{ }} for what depends on the mount.
//
//go:embed readme.txt
var readmeText string

// Passages of README that only some mounts have.
const (
	readmeTar = `

A record consists of all members of one sample. The file is a tar archive, which Python's tarfile and
the webdataset library can read: tarfile.open({{file in Python}}, "r|").`
	readmeNpy = `

A record is a row, and the file is an array of these rows: numpy.load({{file in Python}}, mmap_mode="r").`
	readmeCrops = `

A record is a crop of an array. Its origin is a row of {{crops}}:
the cube (see dataset.json), the number of the crop, and the first element along each dimension.
{{coords}} has the coordinates of elements along a dimension, such as times.`
	readmeGrowing = `

The shards of this dataset change. Each epoch uses the shards that existed when it started, and never
changes. Epoch {{next epoch}} starts when a program opens a file in its directory, or with

  lsiofs next {{mount}} --wait

It does not exist until there is enough new data: {{status}} shows how much there is. ls, find
and du do not start an epoch. A training program opens one epoch after the other, and waits while the
next one does not exist.`
	readmeCounted = `The checkpoint counts what {{counted users}} read (mount --readers names more users).
`
)

// renderREADME renders the file README for an epoch with this many records. It is constant, so that
// its size is exact.
func (t *tree) renderREADME(epoch, records uint64) []byte {
	text := t.readmePassages().Replace(readmeText)
	// Substituted values are not scanned again: a name may contain {{ and }}.
	return []byte(t.readmeValues(epoch, records).Replace(text))
}

// readmePassages fills in the passages that apply to this mount.
func (t *tree) readmePassages() *strings.Replacer {
	var tar, npy, crops, counted, growing string
	if t.cubes != nil {
		crops = readmeCrops
	}
	if t.growing != nil {
		growing = readmeGrowing
	}
	switch t.ext {
	case ".tar":
		tar = readmeTar
	case ".npy":
		npy = readmeNpy
	}
	if t.modes&0o077 != 0 { // other users may read
		counted = readmeCounted
	}
	return strings.NewReplacer("{{about tar}}", tar, "{{about npy}}", npy, "{{about crops}}", crops, "{{counted}}", counted, "{{about growing}}", growing)
}

// readmeValues fills in the names and numbers of this mount.
func (t *tree) readmeValues(epoch, records uint64) *strings.Replacer {
	deal, half := t.spec.Deal, records/2
	file := t.shellPath("worker-0" + t.ext)
	files, workers := file, "1 worker"
	if deal.Workers != 1 {
		workers = fmt.Sprintf("%d workers", deal.Workers)
	}
	if deal.Workers > 1 {
		files += " … " + t.shellPath(fmt.Sprintf("worker-%d%s", deal.Workers-1, t.ext))
	}
	ofFour := "worker-0-of-4" + t.ext
	this, next, other := uint64(0), uint64(1), uint64(7) // any will do
	if t.growing != nil {
		this, next, other = epoch, epoch+1, epoch
	}
	consumed := "n0"
	if deal.Workers > 1 {
		consumed += ",n1"
	}
	if deal.Workers > 2 {
		consumed += ",…"
	}
	inEpoch := func(e uint64) string { return prefixEpoch + strconv.FormatUint(e, 10) }
	look := t.shellPath(inEpoch(this), fmt.Sprintf("worker-0-of-%d%s", deal.Workers, t.ext))
	if look = "head -c 1000 " + look; t.ext == ".tar" {
		look = strings.Replace(look, "head -c 1000", "tar -b 2048 -tf", 1)
	}
	return strings.NewReplacer(
		"{{version}}", t.version,
		"{{dataset}}", t.datasetPath(),
		"{{records}}", fmt.Sprint(records),
		"{{of a sample}}", t.sampleWords(epoch),
		"{{half}}", fmt.Sprint(half),
		"{{workers}}", workers,
		"{{number of workers}}", fmt.Sprint(deal.Workers),
		"{{batch}}", fmt.Sprint(deal.Batch),
		"{{counted users}}", t.readers.words(),
		"{{file}}", file,
		"{{files}}", files,
		"{{file in Python}}", fmt.Sprintf("%q", t.mountPoint+"/worker-0"+t.ext),
		"{{prefix in Python}}", fmt.Sprintf("%q", t.mountPoint+"/worker-"),
		"{{extension in Python}}", fmt.Sprintf("%q", t.ext),
		"{{crops}}", t.shellPath("worker-0"+extCrops),
		"{{coords}}", t.shellPath(nameCoords),
		"{{status}}", t.shellPath("status"),
		"{{look}}", look,
		"{{consumed}}", consumed,
		"{{saved at half}}", t.shellPath(inEpoch(this), fmt.Sprintf("from-%d", half), nameCheckpoint),
		"{{checkpoint}}", t.shellPath("checkpoint"),
		"{{mount}}", t.shellPath(),
		"{{this epoch}}", fmt.Sprint(this),
		"{{next epoch}}", fmt.Sprint(next),
		"{{epoch of four}}", t.shellPath(inEpoch(this), ofFour),
		"{{epoch from half}}", t.shellPath(inEpoch(other), fmt.Sprintf("from-%d", half), ofFour),
	)
}

// shellPath returns a path of the mount as a word of a shell's command line.
func (t *tree) shellPath(names ...string) string {
	path := strings.Join(append([]string{t.mountPoint}, names...), "/")
	if strings.ContainsAny(path, " \t\n'\"\\$`*?[]{}()<>|&;!#~") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// datasetPath returns the dataset as it was named, made absolute, for people.
func (t *tree) datasetPath() string {
	if t.spec.Mix.Asked() || pipeline.IsRemote(t.spec.Dataset) {
		return t.spec.Dataset
	}
	if path, err := filepath.Abs(t.spec.Dataset); err == nil {
		return path
	}
	return t.spec.Dataset
}

// sampled reports whether epochs have different records, and different numbers of them.
func (t *tree) sampled() bool { return t.spec.Order.Sample.Or() != spec.Subsample{} }

// recordsOf is T of an epoch. If epochs differ it may take some nanoseconds for each record of the
// dataset or, if the dataset grows, wait until the epoch's shards are indexed.
func (t *tree) recordsOf(ctx context.Context, epoch uint64) (uint64, error) {
	if !t.differ() {
		return t.records, nil
	}
	return t.dataset.EpochRecords(ctx, epoch)
}

// description is dataset.json of an epoch, which is rendered at the first request.
type description struct {
	mu   sync.Mutex
	text []byte // nil until it has been rendered
}

func (d *description) of(ctx context.Context, t *tree, epoch uint64) (text []byte, err error) {
	d.mu.Lock()
	text = d.text
	d.mu.Unlock()
	if text != nil {
		return text, nil
	}
	if text, err = t.dataset.DescribeEpoch(ctx, epoch); err == nil { // always the same
		d.mu.Lock()
		d.text = text
		d.mu.Unlock()
	}
	return text, err
}

// describe returns dataset.json in the root. If epochs differ it is that of the current one, and
// another file after a restore.
func (n *rootNode) describe(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !n.t.differ() {
		return n.fixed(ctx, out, inoDataset, n.t.description), ok
	}
	v := n.t.view.Load()
	p := n.t.patient(ctx, nil)
	text, err := v.description.of(p, n.t, v.position.Epoch)
	p.finish()
	if err != nil {
		return nil, n.t.problems.errno(nameDataset, err)
	}
	f := &fixedNode{t: n.t, text: text}
	f.attr(&out.Attr)
	return n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.descriptionIno()}), ok
}

// describe returns dataset.json of an epoch, which exists if epochs differ.
func (n *epochNode) describe(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	child := n.GetChild(nameDataset)
	var f *fixedNode
	if child != nil {
		f, _ = child.Operations().(*fixedNode)
	}
	if f == nil {
		p := n.t.patient(ctx, nil)
		text, err := n.t.dataset.DescribeEpoch(p, n.epoch)
		p.finish()
		path := n.below + "/" + nameDataset
		if err != nil {
			return nil, n.t.problems.errno(path, err)
		}
		f = &fixedNode{t: n.t, text: text}
		child = n.NewInode(ctx, f, n.t.named(syscall.S_IFREG, path))
		n.t.lookups.add(n.EmbeddedInode(), nameDataset)
	}
	f.attr(&out.Attr)
	constant(out)
	return child, ok
}

// describes reports whether the directory has a dataset.json.
func (n *epochNode) describes() bool { return n.t.differ() && !n.isFrom }

// sampleName is the share of the records that an epoch has, "" for all.
func (t *tree) sampleName() string {
	if !t.sampled() {
		return ""
	}
	return t.spec.Order.Sample.String()
}

// sampleWords describe which records the files have, "" if all.
func (t *tree) sampleWords(epoch uint64) string {
	if !t.sampled() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d (--sample %s: different in each epoch)", epoch, t.spec.Order.Sample)
}
