package pipeline

// description is the document dataset.json.
type description struct {
	Fingerprint string          `json:"fingerprint"`
	Root        string          `json:"root"`
	Dataset     string          `json:"dataset"`
	Format      describedFormat `json:"format"`
	Extension   string          `json:"extension"`
	Shards      int             `json:"shards"`
	Records     uint64          `json:"records"` // after the split; with a sample, those of the epoch
	Chunks      int             `json:"chunks"`  // likewise
	RecordBytes int64           `json:"bytes"`   // likewise
	Whole       *describedWhole `json:"whole,omitempty"`
	Rows        *describedRows  `json:"rows,omitempty"`
	Zarr        *describedZarr  `json:"zarr,omitempty"`
	// Sources are those of a mixture. Records then counts the positions of an epoch; bytes is the
	// size of all sources' records, each counted once.
	Sources []describedSource `json:"sources,omitempty"`
	Order   describedOrder    `json:"order"`
	Deal    describedDeal     `json:"deal"`
	// Directories are those of a dataset of single files. If there are too many, Omitted is their
	// number instead.
	Directories []directory `json:"directories,omitempty"`
	Omitted     int         `json:"directories_omitted,omitempty"`
	Damaged     int         `json:"damaged_shards"`
	// Reasons counts all damages; Damage lists the first shards.
	Reasons map[string]uint64 `json:"damages_by_reason,omitempty"`
	Damage  []describedDamage `json:"damage,omitempty"`
}

type describedDamage struct {
	Shard   string `json:"shard"`
	Reason  string `json:"reason"`            // of the first damage
	Damages uint64 `json:"damages,omitempty"` // if there are several
}

type describedArray struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
}

// describedRows is set if streams contain rows made from the records.
type describedRows struct {
	As     string `json:"as"`
	Bytes  int64  `json:"row_bytes"`
	Descr  string `json:"descr"`
	Remark string `json:"remark,omitempty"`
}

type describedFormat struct {
	Name        string           `json:"name"`
	Kind        string           `json:"kind,omitempty"`
	RecordBytes int64            `json:"record_bytes,omitempty"`
	StrideBytes int64            `json:"stride_bytes,omitempty"`
	HeaderBytes int64            `json:"header_bytes,omitempty"`
	Lc0Check    bool             `json:"lc0_check,omitempty"`
	Arrays      []describedArray `json:"arrays,omitempty"`
}

type describedSplit struct {
	Part string `json:"part"`
	Seed uint64 `json:"seed"`
	By   string `json:"by"`
}

type describedSample struct {
	Of   uint64 `json:"of"`
	Seed uint64 `json:"seed"`
}

type describedOrder struct {
	Seed         uint64           `json:"seed"`
	Shuffle      string           `json:"shuffle"`
	Size         uint64           `json:"size"`
	Lanes        uint64           `json:"lanes"`
	Groups       uint64           `json:"groups"`
	Batch        uint64           `json:"batch"`
	ChunkBytes   uint64           `json:"chunk_bytes"`
	ChunkRecords uint64           `json:"chunk_records"`
	Split        *describedSplit  `json:"split,omitempty"`
	Sample       *describedSample `json:"sample,omitempty"`
	Length       uint64           `json:"length,omitempty"`
}

// describedSource is a source of a mixture.
type describedSource struct {
	Name        string  `json:"name"`
	Weight      string  `json:"weight"`
	Dataset     string  `json:"dataset"`
	Fingerprint string  `json:"fingerprint"`
	Records     uint64  `json:"records"` // after the split
	RecordBytes int64   `json:"bytes"`   // of these records
	Passes      float64 `json:"passes_an_epoch"`
}

type describedDeal struct {
	Workers uint64 `json:"workers"`
	Batch   uint64 `json:"batch"`
	Deal    string `json:"deal"`
	Tail    string `json:"tail"`
}

type describedWhole struct {
	Records     uint64 `json:"records"`
	RecordBytes int64  `json:"bytes"`
}
