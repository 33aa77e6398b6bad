package parquet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// DamageError is damage of a shard or of one of its row groups: bytes that contradict the format,
// each other, or a checksum. Other row groups are not affected.
type DamageError struct {
	Group     int    // the row group; -1 if the damage is in the footer, so of the whole shard
	Column    string // the names on the way to the column, joined by "."; "" if it is not known
	RawOffset int64  // of the damaged page or structure in the file
	Reason    string
}

func (e *DamageError) Error() string {
	var b strings.Builder
	if e.Group < 0 {
		b.WriteString("footer")
	} else {
		fmt.Fprintf(&b, "row group %d", e.Group)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s", e.Column)
	}
	fmt.Fprintf(&b, ", byte %d of the file: %s", e.RawOffset, e.Reason)
	return b.String()
}

// reason is why bytes are damaged, before it is known where they are.
type reason string

func (r reason) Error() string { return string(r) }

func damaged(format string, args ...any) error { return reason(fmt.Sprintf(format, args...)) }

func refused(column, format string, args ...any) error {
	return &rows.RefusedError{Column: column, Reason: fmt.Sprintf(format, args...)}
}

// placed returns err with the place of the damage, if it is a reason; other errors unchanged.
func placed(err error, group int, column string, rawOffset int64) error {
	if r, ok := errors.AsType[reason](err); ok {
		return &DamageError{Group: group, Column: column, RawOffset: rawOffset, Reason: string(r)}
	}
	return err
}
