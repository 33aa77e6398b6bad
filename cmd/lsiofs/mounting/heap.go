package mounting

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// servedHeapPercent is the heap growth between garbage collections while a mount is served. FUSE's
// library keeps a buffer for every length of reads that it has seen, and frees those that were
// unused for two collections. With Go's default of 100 %, a client that reads in many lengths
// creates new buffers faster than old ones are freed: 350 MiB of them, regardless of --memory. From
// 50 % down their number settles; with 30 % at about the size of the rest of the heap. Answering
// reads makes no garbage, so collections stay rare.
const servedHeapPercent = 30

const (
	// servedHeapBytes is how far the heap of a mount may grow in addition to --memory. The library
	// keeps its buffers once per GOMAXPROCS: with 48 of these and reads of every length they
	// settled at 200 to 490 MiB with servedHeapPercent alone, and at 70 MiB with a bound. There is
	// room for 64 replies of 1 MiB in use, with their copies.
	servedHeapBytes = 112 << 20
	// When less than a step is left between the live heap and its bound, the bound is raised to the
	// live heap plus two steps. A step is the larger of heapStepBytes and a heapStepPart-th of the
	// live heap. Live memory can't be collected, and trying to takes half of the processors. Go
	// stays 3 % below the bound and counts its own tables, too: 32 MiB are nothing next to a GiB.
	heapStepBytes = 16 << 20
	heapStepPart  = 8
)

// heapStep returns the step for that many live bytes.
func heapStep(live int64) int64 { return max(heapStepBytes, live/heapStepPart) }

// heap bounds how far the garbage collector lets memory grow.
type heap struct {
	limit int64 // 0: the user has set one
}

// boundHeap bounds the heap of a mount with that much --memory. The bound is the sum of the live
// heap, half of --memory (the most that decoders and tables take, as records are not on the heap)
// and servedHeapBytes. It leaves GOGC and GOMEMLIMIT alone if the user has set them.
func boundHeap(memoryBytes int64) *heap {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servedHeapPercent)
	}
	h := &heap{}
	if os.Getenv("GOMEMLIMIT") == "" {
		runtime.GC() // so that memory used only while opening the dataset does not count
		live := liveHeap()
		h.limit = raised(live+memoryBytes/2+servedHeapBytes, live)
		debug.SetMemoryLimit(h.limit)
	}
	return h
}

// look raises the bound when the live heap comes close to it. Buffers in the library's pools stay
// live, too, until the second collection in which they are unused. So if the bound seems too low,
// it first collects twice. Otherwise, with reads of every length on 48 processors, the bound
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

// raised returns the new bound, given the old one and the live bytes.
func raised(limit, live int64) int64 {
	if step := heapStep(live); live > limit-step {
		return live + 2*step
	}
	return limit
}

// liveHeap returns the number of bytes that the last collection found live.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
