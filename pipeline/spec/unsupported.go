package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Unsupported is a common dataset format that lsiofs does not read.
type Unsupported struct {
	Name  string // name in --format; also the extension of its files
	Title string
	// python converts the files below the working directory to JSON lines. If possible, the lines
	// of each file are written next to it, with .jsonl added to the name.
	python [2]string
}

const eachTo = `for f in glob.glob("**/*.%s", recursive=True): %s`

// unsupported has the conversion programs according to the documentation of their libraries.
var unsupported = []Unsupported{
	{"parquet", "Parquet", [2]string{"import glob, pandas", fmt.Sprintf(eachTo, "parquet", `pandas.read_parquet(f).to_json(f + ".jsonl", orient="records", lines=True)`)}},
	{"arrow", "Arrow", [2]string{"import datasets, glob", fmt.Sprintf(eachTo, "arrow", `datasets.Dataset.from_file(f).to_json(f + ".jsonl")`)}},
	{"feather", "Feather", [2]string{"import glob, pandas", fmt.Sprintf(eachTo, "feather", `pandas.read_feather(f).to_json(f + ".jsonl", orient="records", lines=True)`)}},
	{"mds", "MosaicML's MDS", [2]string{`import json, streaming; d = streaming.LocalDataset(".")`, `with open("all.jsonl", "w") as f: f.writelines(json.dumps(d[i]) + "\n" for i in range(len(d)))`}},
}

// UnsupportedFile returns the unsupported format that a file's name indicates, compressed or not.
func UnsupportedFile(path string) (Unsupported, bool) {
	for _, codec := range []string{".gz", ".zst", ".zstd", ".lz4", ".br", ".bz2", ".snappy"} {
		path = strings.TrimSuffix(path, codec)
	}
	i := slices.IndexFunc(unsupported, func(u Unsupported) bool { return strings.HasSuffix(path, "."+u.Name) })
	if i < 0 {
		return Unsupported{}, false
	}
	return unsupported[i], true
}

// Convert returns instructions for converting data to a supported format.
func (u Unsupported) Convert() string {
	return fmt.Sprintf("convert it to JSON lines, with these two lines of Python in its directory, and mount that with --format jsonl; records with bytes in them, such as images, need .tar or .npy (see lsiofs help formats)\n    %s\n    %s",
		u.python[0], u.python[1])
}
