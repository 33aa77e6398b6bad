package hunt

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// again mounts the dataset as it is now and compares everything with the reference: both refuse the
// same, or return the same bytes.
func (h *hunter) again() {
	h.t.Helper()
	if h.source.options != nil && h.source.options.Attributes > 0 {
		return // the kernel still has the old attributes
	}
	if h.fuse != nil { // the kernel keeps names for a second, with the old attributes
		for shard := range shards {
			for _, file := range h.d.a[shard] {
				h.fuse.Forget(file.path)
			}
		}
	}
	ref, err := h.d.startReference(h.behind, "--on-corrupt", "skip")
	if err != nil {
		h.find("the reference: %v", err)
		return
	}
	defer ref.Close()
	deal := h.order.deals()[0]
	want := make([][]byte, deal[1])
	var refused error
	for w := range want {
		if want[w], refused = ask(ref, h.order, deal[0], w, deal[1], "data"); refused != nil {
			break
		}
	}
	cmd := exec.Command(lsiofs, append(h.arguments("mount", h.dir, h.point), "--on-corrupt", "skip")...)
	cmd.Env = environmentIn(h.tmp)
	server, err := serve.Start(cmd, h.point)
	if err != nil {
		h.find("mount again: %v", err)
		return
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if !server.Ended(endLimit / 2) {
			h.find("the server of the second mount does not end: %s", server.Log)
			_ = cmd.Process.Kill()
			<-server.Exited
		}
		if serve.IsMount(h.point) {
			serve.Detach(h.point)
		}
	}()
	err = server.WaitUntilMounted()
	if (err != nil) != (refused != nil) {
		h.find("mounted again: %v; the reference: %v", err, refused)
	}
	if err != nil || refused != nil {
		return
	}
	for w := range want {
		if text := h.sameAgain(fmt.Sprintf("worker-%d%s", w, h.d.k.streamExt), want[w], server); text != "" {
			h.find("mounted again: %s%s", text, h.tell(everyShard()))
			return
		}
	}
}

// sameAgain compares a file of the second mount.
func (h *hunter) sameAgain(name string, want []byte, server *serve.Server) string {
	fd, err := unix.Open(filepath.Join(h.point, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != int64(len(want)) {
		return fmt.Sprintf("%s has %d bytes (%v), want %d", name, st.Size, err, len(want))
	}
	buf := make([]byte, 64<<10)
	for off := 0; off < len(want); {
		n, err := unix.Pread(fd, buf[:min(len(buf), len(want)-off)], int64(off))
		if err == unix.EIO && h.d.k.name == frames.name && strings.Contains(server.Log.String(), "crc32c") {
			off += len(buf) // damage that only reading reveals
			continue
		}
		if err != nil || n == 0 {
			return fmt.Sprintf("%s at %d: %d bytes, %v: %s", name, off, n, err, server.Log)
		}
		if !bytes.Equal(buf[:n], want[off:off+n]) {
			return fmt.Sprintf("%s at %d: other bytes than in the reference: %s, want %s", name, off, origin(buf[:n]), origin(want[off:off+n]))
		}
		off += n
	}
	return ""
}
