package document

import (
	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// Write writes a command's output to a file, atomically and readable only by the user, or to stdout
// for "-".
func Write(path string, doc []byte, u *terminal.UI) error {
	if path == "-" {
		_, err := u.Out.Write(doc)
		return err
	}
	if err := checkpoint.WriteFile(path, doc); err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(map[string]any{"saved": path, "bytes": len(doc)})
	}
	u.Notef("saved %s: %s", path, terminal.Bytes(int64(len(doc))))
	return nil
}
