package pipeline

import (
	"encoding/json"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// maxDescribedDamage bounds the damaged shards that dataset.json lists.
const maxDescribedDamage = 100

// describe is Dataset.Describe.
func (g *generation) describe() ([]byte, error) {
	type damage struct {
		Shard   string `json:"shard"`
		Reason  string `json:"reason"`            // of the first
		Damages uint64 `json:"damages,omitempty"` // if there are several
	}
	type array struct {
		Name    string `json:"name"`
		Pattern string `json:"pattern"`
	}
	type format struct {
		Name        string  `json:"name"`
		Kind        string  `json:"kind,omitempty"`
		RecordBytes int64   `json:"record_bytes,omitempty"`
		StrideBytes int64   `json:"stride_bytes,omitempty"`
		HeaderBytes int64   `json:"header_bytes,omitempty"`
		Lc0Check    bool    `json:"lc0_check,omitempty"`
		Arrays      []array `json:"arrays,omitempty"`
	}
	type split struct {
		Part string `json:"part"`
		Seed uint64 `json:"seed"`
		By   string `json:"by"`
	}
	type order struct {
		Seed         uint64 `json:"seed"`
		Shuffle      string `json:"shuffle"`
		Size         uint64 `json:"size"`
		Lanes        uint64 `json:"lanes"`
		Groups       uint64 `json:"groups"`
		Batch        uint64 `json:"batch"`
		ChunkBytes   uint64 `json:"chunk_bytes"`
		ChunkRecords uint64 `json:"chunk_records"`
		Split        *split `json:"split,omitempty"`
	}
	type deal struct {
		Workers uint64 `json:"workers"`
		Batch   uint64 `json:"batch"`
		Deal    string `json:"deal"`
		Tail    string `json:"tail"`
	}
	type whole struct {
		Records     uint64 `json:"records"`
		RecordBytes int64  `json:"bytes"`
	}
	s, c := g.spec, g.catalog
	document := struct {
		Fingerprint string `json:"fingerprint"`
		Root        string `json:"root"`
		Dataset     string `json:"dataset"`
		Format      format `json:"format"`
		Extension   string `json:"extension"`
		Shards      int    `json:"shards"`
		Records     uint64 `json:"records"` // that the split leaves
		Chunks      int    `json:"chunks"`  // likewise
		RecordBytes int64  `json:"bytes"`   // likewise
		Whole       *whole `json:"whole,omitempty"`
		Order       order  `json:"order"`
		Deal        deal   `json:"deal"`
		// Directories are those of a dataset of single files. Where there are too many of
		// them, Omitted is their number instead.
		Directories []directory `json:"directories,omitempty"`
		Omitted     int         `json:"directories_omitted,omitempty"`
		Damaged     int         `json:"damaged_shards"`
		// Reasons counts all damages; Damage lists the first shards.
		Reasons map[string]uint64 `json:"damages_by_reason,omitempty"`
		Damage  []damage          `json:"damage,omitempty"`
	}{
		Fingerprint: c.Fingerprint(), Root: c.Root(), Dataset: s.Dataset,
		Format:    format{s.Format.Name, c.Kind(), s.Format.RecordBytes, s.Format.StrideBytes, s.Format.HeaderBytes, s.Format.Lc0Check, nil},
		Extension: c.StreamExtension(),
		Shards:    c.Shards(), Records: g.records(), Chunks: g.chunks(), RecordBytes: g.streamBytes(),
		Order: order{
			s.Order.Seed, string(s.Order.Shuffle), s.Order.SizeRecords, s.Order.Lanes, s.Order.Groups,
			s.Order.Batch, s.Order.ChunkBytes, s.Order.ChunkRecords, nil,
		},
		Deal:    deal{s.Deal.Workers, s.Deal.Batch, string(s.Deal.Dealing), string(s.Deal.Tail)},
		Damaged: len(c.Damaged()),
	}
	for _, a := range s.Format.Arrays {
		document.Format.Arrays = append(document.Format.Arrays, array(a))
	}
	if g.part != nil {
		document.Order.Split = &split{s.Order.Split.Part.String(), s.Order.Split.Seed, string(s.Order.Split.By)}
		document.Whole = &whole{c.Records(), c.StreamBytes()}
	}
	for _, found := range c.Damaged()[:min(len(c.Damaged()), maxDescribedDamage)] {
		one := damage{Shard: found.Path, Reason: found.Errors[0].Error()}
		if n := found.Count(); n > 1 {
			one.Damages = n
		}
		document.Damage = append(document.Damage, one)
	}
	document.Reasons = g.damages()
	document.Directories, document.Omitted = g.directories()
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("dataset.json: %w", err)
	}
	return append(printable.JSON(b), '\n'), nil
}

// damages counts what was left out, by reason; nil where nothing was.
func (g *generation) damages() map[string]uint64 {
	var m map[string]uint64
	for _, r := range g.catalog.DamageReasons() {
		if m == nil {
			m = map[string]uint64{}
		}
		m[r.Text] = r.Count
	}
	return m
}
