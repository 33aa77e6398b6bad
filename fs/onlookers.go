package fs

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Readers are the users, besides the mount's owner and root, whose reads of worker files count as
// delivered. They matter only if other users may read.
type Readers struct {
	All   bool
	Users []uint32
}

// onlooker is a process that has read at a worker's mark, but does not count.
type onlooker struct {
	UID uint32 `json:"uid"`
	PID uint32 `json:"pid"` // 0 for a process in another container
}

// readers decides whose reads count, and logs those whose reads don't, once each. It is safe for
// concurrent use.
type readers struct {
	Readers
	owner uint32
	log   *slog.Logger

	mu      sync.Mutex
	told    []uint32
	remarks map[string]bool // by path and text
}

// toldMost bounds the number of users, and of worker files, that are logged.
const toldMost = 16

func (r *readers) counts(uid uint32) bool {
	return r.All || uid == r.owner || uid == 0 || slices.Contains(r.Users, uid)
}

// words describes whose reads count, for people.
func (r *readers) words() string {
	users := []string{"root"}
	for _, uid := range slices.Compact(slices.Sorted(slices.Values(append(r.Users[:len(r.Users):len(r.Users)], r.owner)))) {
		if uid != 0 {
			users = append(users, fmt.Sprintf("user %d", uid))
		}
	}
	if r.All {
		return "all users"
	}
	if len(users) == 1 {
		return users[0]
	}
	return strings.Join(users[:len(users)-1], ", ") + " and " + users[len(users)-1]
}

// tell logs that what h was sent does not count.
func (r *readers) tell(h *streamHandle) {
	r.mu.Lock()
	known := len(r.told) == toldMost || slices.Contains(r.told, h.uid)
	if !known {
		r.told = append(r.told, h.uid)
	}
	r.mu.Unlock()
	if !known {
		r.log.Warn("the checkpoint does not count this user's reads", "user", h.uid, "process", h.pid, "file", h.node.path, "help", uncountedHelp(h.uid))
	}
}

// tellMark logs a remark about the mark of h's file, once each.
func (r *readers) tellMark(level slog.Level, h *streamHandle, by process, remark string) {
	key := h.node.path + "\n" + remark
	r.mu.Lock()
	known := len(r.remarks) == toldMost || r.remarks[key]
	if !known {
		if r.remarks == nil {
			r.remarks = map[string]bool{}
		}
		r.remarks[key] = true
	}
	r.mu.Unlock()
	if !known {
		r.log.Log(context.Background(), level, remark, "file", h.node.path, "process", by.pid, "command", by.command)
	}
}

// uncountedHelp is the advice if a user who trains does not count.
func uncountedHelp(uid uint32) string {
	return "if this user trains, mount with --readers " + strconv.FormatUint(uint64(uid), 10) +
		", or restore the short form {\"epoch\": …, \"samples\": …}"
}

func (o *onlooker) String() string {
	if o.PID == 0 {
		return fmt.Sprintf("read by user %d, not counted", o.UID)
	}
	return fmt.Sprintf("read by user %d (process %d), not counted", o.UID, o.PID)
}
