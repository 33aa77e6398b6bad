package catalog

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/tables"
	"github.com/lsiofs/lsiofs/pipeline/format/tokens"
	"github.com/lsiofs/lsiofs/pipeline/format/zarr"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// datasetLines writes the text whose SHA-256 is the dataset's fingerprint
// (pipeline/order/STREAMS.md, Fingerprints).
func datasetLines(w io.Writer, f spec.Format, shards []index.Shard) error {
	b := bufio.NewWriterSize(w, 64<<10)
	_, _ = b.WriteString(datasetWords + formatWords(f) + kindWords(f, shards) + "\n")
	var line []byte
	for i := range shards {
		h := shards[i].Blob.Header()
		decoded := h.DecodedBytes
		if len(f.Arrays) > 0 || f.Name == "zarr" {
			decoded = h.StreamBytes // the object has a header of its own
		}
		line = appendLine(line[:0], h.Records, uint64(decoded), h.EntryPoints, shards[i].Object.Path)
		_, _ = b.Write(line)
	}
	return b.Flush()
}

// datasetWords begins the text of every dataset.
const datasetWords = "lsiofs/1 dataset "

// firstLine returns the first line of the text for a dataset of that format.
func firstLine(f spec.Format) string { return datasetWords + formatWords(f) + "\n" }

// appendLine appends a shard's line.
func appendLine(dst []byte, records, decodedBytes, entryPoints uint64, path string) []byte {
	dst = append(strconv.AppendUint(dst, records, 10), ' ')
	dst = append(strconv.AppendUint(dst, decodedBytes, 10), ' ')
	dst = append(strconv.AppendUint(dst, entryPoints, 10), ' ')
	return append(append(dst, path...), '\n')
}

// kindWords returns the records' kind as the fingerprint includes it: for crops all of it, for tokens
// their dtype and the format's parameters, for other formats "".
func kindWords(f spec.Format, shards []index.Shard) string {
	if f.Name != "zarr" && f.Name != "tokens" {
		return ""
	}
	var kinds []string
	for i := range shards {
		if k := string(shards[i].Blob.Kind()); shards[i].Blob.Header().Records > 0 && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	if f.Name == "tokens" { // of one kind
		return tokens.Text(f, kinds[0])
	}
	return " " + zarr.Format{}.MixedKind(kinds)
}

// formatWords returns the format as it appears in a fingerprint's text.
func formatWords(f spec.Format) string {
	switch {
	case len(f.Arrays) > 0:
		return "npy " + f.ArrayNames()
	case f.Name == "fixed":
		return fmt.Sprintf("fixed %d %d %d", f.RecordBytes, f.StrideBytes, f.HeaderBytes)
	case f.Name == "parquet":
		return tables.Text(f)
	}
	return f.Name
}

// formatLine returns a format with its parameters as text. An index records the line of the format
// by which its shards were cut, and the line of the requested format is part of the index's key.
func formatLine(f spec.Format) string {
	f = f.WithDefaults()
	switch {
	case f.Name == "fixed":
		return fmt.Sprintf("fixed %d %d %d %s", f.RecordBytes, f.StrideBytes, f.HeaderBytes, f.Remainder)
	case len(f.Arrays) > 0:
		return fmt.Sprintf("npy %q", f.Arrays)
	case f.Name == "zarr":
		return fmt.Sprintf("zarr %+v", f.Zarr)
	case f.Name == "parquet":
		return tables.Text(f)
	case f.Name == "tokens":
		return f.Name + tokens.Line(f)
	case f.Lc0Check:
		return f.Name + " check"
	}
	return f.Name
}

// formatName returns the name with which a format's text begins.
func formatName(line string) string {
	name, _, _ := strings.Cut(line, " ")
	return name
}

// explained is the largest number of shards that Explain names.
const explained = 5

// Explain describes in which shards the dataset differs from the one with that fingerprint, if an
// index of that is remembered; else it returns "".
func (c *Catalog) Explain(fingerprint string) string {
	lines := c.store.Recall(fingerprint)
	if lines == nil {
		return ""
	}
	var now bytes.Buffer
	if c.union != nil {
		_ = c.union(&now) // a buffer returns no errors
		return mixtureDifferences(lines, now.Bytes(), c.unpacker)
	}
	if bytes.HasPrefix(lines, []byte("lsiofs/1 mixture ")) {
		return "that was a mixture, and this is one dataset"
	}
	shards := make([]index.Shard, c.Shards())
	for i := range shards {
		shards[i] = index.Shard{Object: c.image.Object(uint64(i)), Blob: c.image.Blob(uint64(i))}
	}
	_ = datasetLines(&now, c.format, shards) // a buffer returns no errors
	return differences(parseLines(lines), parseLines(now.Bytes()), c.unpacker)
}

// describedDataset is the parsed text of a fingerprint.
type describedDataset struct {
	format string
	shards map[string]describedShard
}

type describedShard struct{ records, bytes, entries string }

func parseLines(text []byte) describedDataset {
	d := describedDataset{shards: map[string]describedShard{}}
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if d.format == "" {
			d.format = strings.TrimPrefix(s.Text(), datasetWords)
			continue
		}
		if p := strings.SplitN(s.Text(), " ", 4); len(p) == 4 {
			d.shards[p[3]] = describedShard{p[0], p[1], p[2]}
		}
	}
	return d
}

// formatsDiffer describes how the words of two formats differ.
func formatsDiffer(was, is string, f format.Format) string {
	if name := formatName(is); formatName(was) == name {
		if told := kindsDiffer(f, strings.TrimPrefix(is, name+" "), strings.TrimPrefix(was, name+" ")); told != "" {
			return "of its format, " + name + ", " + told
		}
	}
	from := differAt(was, is)
	return fmt.Sprintf("its format is %s, and was %s", kindText(is, from), kindText(was, from))
}

// differences describes the differences between was and is.
func differences(was, is describedDataset, f format.Format) string {
	if was.format != is.format {
		return formatsDiffer(was.format, is.format, f)
	}
	all := map[string]bool{}
	for path := range was.shards {
		all[path] = true
	}
	for path := range is.shards {
		all[path] = true
	}
	var words []string
	for path := range all {
		before, had := was.shards[path]
		after, has := is.shards[path]
		switch {
		case before == after && had == has:
		case !has:
			words = append(words, path+" is gone")
		case !had:
			words = append(words, path+" is new")
		default:
			words = append(words, path+" "+change(before, after))
		}
	}
	if len(words) == 0 {
		return "it is the same dataset"
	}
	slices.Sort(words)
	n := len(words)
	if n > explained {
		words = append(words[:explained], fmt.Sprintf("and %d more", n-explained))
	}
	return fmt.Sprintf("%d of %d shards differ: %s", n, len(all), strings.Join(words, ", "))
}

func change(before, after describedShard) string {
	switch {
	case before.records != after.records:
		return fmt.Sprintf("has %s records, and had %s", after.records, before.records)
	case before.bytes != after.bytes:
		return fmt.Sprintf("has %s bytes, and had %s", after.bytes, before.bytes)
	}
	return fmt.Sprintf("can be entered at %s records, and could at %s", after.entries, before.entries)
}

// Damage is a shard of which something was left out (--on-corrupt skip).
type Damage struct {
	Path string
	// Errors are the first that were found, at least one, in file order.
	Errors []*format.CorruptError
	// Reasons counts the damages by reason. A shard that is not made of parts has one reason, with
	// count 1.
	Reasons []format.Reason
}

// Count returns the number of damages.
func (d *Damage) Count() (n uint64) {
	for _, r := range d.Reasons {
		n += r.Count
	}
	return n
}

// DamageReasons counts what was left out of all shards, by reason.
func (c *Catalog) DamageReasons() (list []format.Reason) {
	for i := range c.damaged {
		for _, r := range c.damaged[i].Reasons {
			list = format.CountReason(list, r.Text, r.Count)
		}
	}
	return list
}

// setDamaged reads from the index what was left out.
func (c *Catalog) setDamaged() {
	for n := range c.image.Shards() {
		if l := c.image.Blob(n).Losses(); len(l.First) > 0 {
			c.damaged = append(c.damaged, Damage{Path: c.image.Object(n).Path, Errors: l.First, Reasons: l.Reasons})
		}
	}
}

// logDamage logs a few shards; Catalog.Damaged has them all.
func logDamage(log *slog.Logger, damaged []Damage) {
	const most = 10
	for i, d := range damaged {
		if i == most {
			log.Warn("damaged records are left out of more shards", "shards", len(damaged)-most)
			return
		}
		log.Warn("damaged records are left out", "shard", d.Path, "damages", d.Count(), "reason", d.Errors[0].Error())
	}
}
