package fs

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/lsiofs/lsiofs/pipeline"
)

//go:embed readme.tmpl
var readmeText string

// renderREADME is the file README. It is constant, so that its size is exact.
func (t *tree) renderREADME() []byte {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	tmpl := template.Must(template.New(nameREADME).Funcs(template.FuncMap{
		"sh": func(name ...string) string {
			path := strings.Join(append([]string{t.mountPoint}, name...), "/")
			if strings.ContainsAny(path, " \t\n'\"\\$`*?[]{}()<>|&;!#~") {
				return quote(path)
			}
			return path
		},
		"py":   func(s string) string { return fmt.Sprintf("%q", s) },
		"last": func(n uint64) uint64 { return n - 1 },
	}).Parse(readmeText))
	var b bytes.Buffer
	err := tmpl.Execute(&b, map[string]any{
		"Version": t.version, "Mount": t.mountPoint, "Dataset": t.datasetPath(), "Records": t.records, "Half": t.records / 2,
		"Workers": t.spec.Deal.Workers, "Batch": t.spec.Deal.Batch, "Ext": t.ext, "Tar": t.ext == ".tar", "Npy": t.ext == ".npy",
		"Others": t.modes&0o077 != 0, "Counted": t.readers.words(),
	})
	if err != nil {
		panic(err) // the text is ours, and a test renders it
	}
	return b.Bytes()
}

// datasetPath is the dataset as it was named, made absolute, for people.
func (t *tree) datasetPath() string {
	if pipeline.IsRemote(t.spec.Dataset) {
		return t.spec.Dataset
	}
	if path, err := filepath.Abs(t.spec.Dataset); err == nil {
		return path
	}
	return t.spec.Dataset
}
