package mounting

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// servedHeapPercent is by how much the heap grows from one garbage collection to
// the next while a mount is served. FUSE's library keeps a buffer for every
// length of reads that it has seen, and gives up those that were not used from
// one collection to the one after the next. With Go's 100 % a client that reads
// in many lengths makes new buffers faster than old ones go: 350 MiB of them,
// whatever --memory says; from 50 % down they settle, at about as much as the rest
// of the heap with 30 %. Answering reads makes no garbage, so that collections
// stay rare.
const servedHeapPercent = 30

const (
	// servedHeapBytes is what the heap of a mount may grow by beside --memory. The
	// library keeps its buffers once for each of GOMAXPROCS: with 48 of these and
	// reads of every length they settled at 200 to 490 MiB by servedHeapPercent alone,
	// and at 70 MiB with a bound. 64 replies of 1 MiB with their copies fit, which are
	// in use.
	servedHeapBytes = 112 << 20
	// heapStepBytes, or a heapStepPart-th of what lives, is how close to its bound a heap may
	// live before the bound is raised, and by how much more: what lives can't be collected,
	// and to try takes half of the processors. Go stays 3 % below the bound and counts
	// its own tables, too: 32 MiB are none at all beside a GiB.
	heapStepBytes = 16 << 20
	heapStepPart  = 8
)

// heapStep is the step for so many bytes that live.
func heapStep(live int64) int64 { return max(heapStepBytes, live/heapStepPart) }

// heap bounds the memory that the garbage collector lets grow.
type heap struct {
	limit int64 // 0: the user has set one
}

// boundHeap bounds the heap of a mount with so much --memory: by what lives now, half of
// --memory, which is the most that decoders and tables take, for records do not lie in
// the heap, and servedHeapBytes. What the user has set with GOGC or GOMEMLIMIT stays.
func boundHeap(memoryBytes int64) *heap {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servedHeapPercent)
	}
	h := &heap{}
	if os.Getenv("GOMEMLIMIT") == "" {
		runtime.GC() // so that what has lived only while the dataset was opened does not count
		live := liveHeap()
		h.limit = raised(live+memoryBytes/2+servedHeapBytes, live)
		debug.SetMemoryLimit(h.limit)
	}
	return h
}

// look raises the bound where what lives comes close to it. Buffers that lie in the library's pools live,
// too, until a second collection in which nobody has used them: where the bound seems to be too low, it
// collects twice before it believes so. With reads of every length, on 48 processors, the bound else
// followed the buffers.
func (h *heap) look() {
	if h.limit == 0 || raised(h.limit, liveHeap()) == h.limit {
		return
	}
	runtime.GC()
	runtime.GC()
	if limit := raised(h.limit, liveHeap()); limit != h.limit {
		h.limit = limit
		debug.SetMemoryLimit(limit)
	}
}

// raised is the bound of a heap of which so many bytes live, and that had another one.
func raised(limit, live int64) int64 {
	if step := heapStep(live); live > limit-step {
		return live + 2*step
	}
	return limit
}

// liveHeap is how many bytes the last collection found to live.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
