package opening

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// besideBytes is a process's memory in addition to --memory (manual, limits).
const besideBytes = 150 << 20

// MemoryWarning returns a warning if a process with this spec may take more memory than the machine
// or its control group allows, or "".
func MemoryWarning(s spec.Spec) string { return memoryWarning(s.MemoryBytes, cgroup.AllowedBytes()) }

func memoryWarning(memoryBytes, allowedBytes int64) string {
	if memoryBytes <= allowedBytes-besideBytes {
		return ""
	}
	text := fmt.Sprintf("--memory %s does not fit: lsiofs uses that and up to %s more, and this process may use %s, so it may be killed; ",
		terminal.Size(uint64(memoryBytes)), terminal.Size(besideBytes), terminal.Size(uint64(allowedBytes)))
	if fits := spec.MemoryWithin(allowedBytes); fits < memoryBytes && fits <= allowedBytes-besideBytes {
		return text + fmt.Sprintf("give --memory %s, which is the default here, or raise its control group's limit (memory.max)", terminal.Size(uint64(fits)))
	}
	return text + "raise its control group's limit (memory.max)"
}

// leastHeapBytes is the lowest bound of the heap: below it, collecting would take most of the time.
const leastHeapBytes = 64 << 20

// boundHeap makes the collector work harder when the heap comes close to what the process may use
// minus --memory, which is outside the heap. It leaves GOMEMLIMIT alone if the user has set it. A
// mount bounds its heap more tightly once it is served.
func boundHeap(memoryBytes int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(max((cgroup.AllowedBytes()-memoryBytes)/4*3, leastHeapBytes))
}
