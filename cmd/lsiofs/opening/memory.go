package opening

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// besideBytes is what a process takes besides --memory (manual, limits).
const besideBytes = 150 << 20

// MemoryWarning returns a warning where a process of this spec may take more memory than the machine, or
// its control group, allows it; "" if it fits.
func MemoryWarning(s spec.Spec) string { return memoryWarning(s.MemoryBytes, cgroup.AllowedBytes()) }

func memoryWarning(memoryBytes, allowedBytes int64) string {
	if memoryBytes <= allowedBytes-besideBytes {
		return ""
	}
	text := fmt.Sprintf("--memory %s does not fit: lsiofs takes that and up to %s, and this process may have %s: it may be killed; ",
		terminal.Size(uint64(memoryBytes)), terminal.Size(besideBytes), terminal.Size(uint64(allowedBytes)))
	if fits := spec.MemoryWithin(allowedBytes); fits < memoryBytes && fits <= allowedBytes-besideBytes {
		return text + fmt.Sprintf("give --memory %s, which is the default here, or raise the limit of its control group (memory.max)", terminal.Size(uint64(fits)))
	}
	return text + "raise the limit of its control group (memory.max)"
}

// leastHeapBytes is the least bound of the heap: below it collecting would take most of the time.
const leastHeapBytes = 64 << 20

// boundHeap has the collector work harder where the heap comes close to what the process may have, less
// --memory, which lies outside of the heap. What the user has set with GOMEMLIMIT stays. A mount bounds
// its heap more closely once it is served.
func boundHeap(memoryBytes int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(max((cgroup.AllowedBytes()-memoryBytes)/4*3, leastHeapBytes))
}
