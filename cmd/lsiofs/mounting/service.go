package mounting

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// serviceReporter also notifies the service manager that started this process (systemd,
// Type=notify) of the mount's start and end: READY=1 once the tree answers, STOPPING=1 when it is
// being unmounted, and STATUS, a sentence for systemctl status. It ignores a manager that does not
// listen.
type serviceReporter struct {
	Reporter
	socket string           // its address; one that begins with @ is not a file
	seen   catalog.Progress // the last one that advanced
	filled opening.Filled   // likewise
	next   time.Duration    // when the next notice is due, by the pass's clock
}

// Each notice of a moving index pass extends the start by startExtension, whatever TimeoutStartSec
// the unit has: a first index may take hours. A pass that does not move is not extended.
const (
	startExtension = 2 * time.Minute
	extendEvery    = time.Second
)

// notifyTimeout bounds the wait for a manager that does not read.
const notifyTimeout = time.Second

// withService adds notifications to the service manager, if there is one.
func withService(r Reporter) Reporter {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return r
	}
	return &serviceReporter{Reporter: r, socket: socket}
}

// notify sends assignments in one message (sd_notify(3)), one a line. Values are escaped, since
// they may contain foreign names, must not break the line, and are shown by systemctl.
func (r *serviceReporter) notify(assignments ...string) {
	for i, a := range assignments {
		assignments[i] = printable.Line(strings.ReplaceAll(a, "\n", "; "))
	}
	c, err := net.Dial("unixgram", r.socket)
	if err != nil {
		return
	}
	defer c.Close()
	if c.SetWriteDeadline(time.Now().Add(notifyTimeout)) == nil {
		_, _ = c.Write([]byte(strings.Join(assignments, "\n")))
	}
}

func (r *serviceReporter) Progress(p catalog.Progress) {
	r.Reporter.Progress(p)
	moved := p.Bytes != r.seen.Bytes || p.Shards != r.seen.Shards || p.Records != r.seen.Records
	if !p.Done && (!moved || p.Elapsed < r.next) {
		return
	}
	r.seen, r.next = p, p.Elapsed+extendEvery
	status := fmt.Sprintf("STATUS=%s: %s", opening.Indexing, opening.LineOf(p))
	if p.Done {
		status = fmt.Sprintf("STATUS=indexed: %s; mounting", terminal.Plural(p.Records, "record"))
	}
	r.notify(status, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
}

func (r *serviceReporter) Filling(f opening.Filled) {
	r.Reporter.Filling(f)
	if f.Done || f.Bytes == r.filled.Bytes || f.Elapsed < r.filled.Elapsed+extendEvery {
		return
	}
	r.filled = f
	r.notify(fmt.Sprintf("STATUS=filling the cache: %s", f), fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
}

// Waiting extends the start for as long as it takes: shards may arrive tomorrow.
func (r *serviceReporter) Waiting(w opening.Waited) {
	r.Reporter.Waiting(w)
	r.notify(fmt.Sprintf("STATUS=waiting: %s", w), fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startExtension.Microseconds()))
}

func (r *serviceReporter) Trouble(text string) {
	r.Reporter.Trouble(text)
	r.notify("STATUS=" + text)
}

func (r *serviceReporter) Mounted(i Info) {
	r.Reporter.Mounted(i)
	r.notify("READY=1", "STATUS="+i.sentence())
}

func (r *serviceReporter) Serving(sentence func() string) {
	r.Reporter.Serving(sentence)
	r.notify("STATUS=" + sentence())
}

func (r *serviceReporter) Unmounting() {
	r.Reporter.Unmounting()
	r.notify("STOPPING=1", fmt.Sprintf("STATUS=unmounting: waiting up to %v for open files to close", drainTime))
}

func (r *serviceReporter) Ended(err error) {
	r.Reporter.Ended(err)
	status := "STATUS=unmounted"
	if err != nil {
		status = "STATUS=" + err.Error()
	}
	r.notify("STOPPING=1", status)
}
