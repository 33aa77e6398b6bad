package fs

import (
	"bytes"
	"fmt"
	"log/slog"

	"github.com/dustin/go-humanize/english"

	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/read"
)

// changeLog logs a warning for each shard that has changed since it was indexed, once. The reads
// that find the change can't log it themselves, because they hold locks. Only one goroutine may use
// it at a time.
type changeLog struct {
	log  *slog.Logger
	help string
	told int
	more bool // the log has mentioned that there are more than it names
}

func (l *changeLog) tell(c *read.Changed) {
	if c == nil {
		return
	}
	for _, x := range c.First[l.told:] {
		l.log.Warn("a shard has changed since it was indexed", "shard", x.Shard, "reason", x.Reason, "help", l.help)
	}
	if l.told = len(c.First); c.Count > l.told && !l.more {
		l.more = true
		l.log.Warn("more shards have changed since they were indexed: see status for the count", "help", l.help)
	}
}

// changedHelp is the advice about shards that have changed.
func (t *tree) changedHelp() string {
	if t.growing != nil {
		return "readers of their old contents get EIO; continue with the next epoch (lsiofs next)"
	}
	return "readers of their old contents get EIO; mount again to index the new contents"
}

// changesShown bounds the list in the text of status.
const changesShown = 8

// writeChanged lists the shards that have changed.
func writeChanged(b *bytes.Buffer, c *read.Changed, help string) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\nchanged since they were indexed: %s; %s\n", english.Plural(c.Count, "shard", ""), help)
	for _, x := range c.First[:min(len(c.First), changesShown)] {
		fmt.Fprintf(b, "  %s %s: %s\n", stamp(x.Seen), printable.Line(x.Shard), printable.Line(x.Reason))
	}
	if more := c.Count - changesShown; more > 0 {
		fmt.Fprintf(b, "  … and %d more\n", more)
	}
}
