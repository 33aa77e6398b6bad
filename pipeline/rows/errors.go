package rows

import (
	"errors"
	"fmt"
	"strings"
)

// DamageError is damage of one row: a value that its type does not permit. Other rows of the shard
// are not affected.
type DamageError struct {
	Column string // with the names of fields and the indexes of elements: "more.2.path"
	Reason string
}

func (e *DamageError) Error() string { return inColumn(e.Column, e.Reason) }

// RefusedError reports a schema, a selection or a value that is not presented, whatever the value of
// --on-corrupt. Column is "" if the error is not about a single column.
type RefusedError struct {
	Column string
	Reason string
}

func (e *RefusedError) Error() string { return inColumn(e.Column, e.Reason) }

func inColumn(column, reason string) string {
	if column == "" {
		return reason
	}
	return fmt.Sprintf("column %s: %s", column, reason)
}

func damaged(format string, args ...any) error {
	return &DamageError{Reason: fmt.Sprintf(format, args...)}
}

func refused(column, format string, args ...any) error {
	return &RefusedError{Column: column, Reason: fmt.Sprintf(format, args...)}
}

// within returns err with a name prepended to the path of its column. Errors are not shared, so it
// is changed in place.
func within(err error, name string) error {
	if d, ok := errors.AsType[*DamageError](err); ok {
		d.Column = joined(name, d.Column)
	} else if r, ok := errors.AsType[*RefusedError](err); ok {
		r.Column = joined(name, r.Column)
	}
	return err
}

func joined(name, rest string) string { return strings.TrimSuffix(name+"."+rest, ".") }
