package cache

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
)

// cleaned is the result of Clean as JSON.
type cleaned struct {
	Removed int   `json:"removed"`
	InUse   int   `json:"in_use"`
	Bytes   int64 `json:"freed_bytes"`
}

// Clean removes objects that no mount uses, and reports what it has freed.
func Clean(ctx context.Context, d *diskcache.Directory, which diskcache.Which, u *terminal.UI) error {
	c, err := d.Clean(ctx, which)
	if err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(cleaned{c.Removed, c.InUse, c.FreedBytes})
	}
	text := fmt.Sprintf("removed %s, freed %s", terminal.Plural(uint64(c.Removed), "object"), terminal.Bytes(c.FreedBytes))
	if c.InUse > 0 {
		text += fmt.Sprintf("; kept %s that mounts use", terminal.Plural(uint64(c.InUse), "object"))
	}
	return u.Printf("%s\n", text)
}

// Unused is a flag's value: a time in days (30d) or in Go's units (12h).
type Unused time.Duration

func (v *Unused) String() string {
	d := time.Duration(*v)
	if day := 24 * time.Hour; d > 0 && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return d.String()
}

// Set implements pflag.Value.
func (v *Unused) Set(text string) error {
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a time: write days or hours, such as 30d or 12h", text)
	}
	*v = Unused(d)
	return nil
}

// Type implements pflag.Value.
func (v *Unused) Type() string { return "time" }
