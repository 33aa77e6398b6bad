package fs

import (
	"context"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// texts bounds what openings of status, metrics and checkpoint by other users keep in memory: each
// opening has its own text, up to 16 MiB. Those of the owner and root are not counted, since they
// can end the mount anyway. It is safe for concurrent use.
type texts struct {
	owner uint32
	most  int64

	mu    sync.Mutex
	taken int64
}

// textsMost is enough for some thousand openings of a usual status.
const textsMost = 32 << 20

// take reserves room for a text of n bytes. It returns how much to give back, and whether there was
// room.
func (s *texts) take(ctx context.Context, n int) (taken int64, fits bool) {
	c, fromClient := ctx.(*fuse.Context)
	if !fromClient || c.Uid == s.owner || c.Uid == 0 {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken+int64(n) > s.most {
		return 0, false
	}
	s.taken += int64(n)
	return int64(n), true
}

func (s *texts) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}
