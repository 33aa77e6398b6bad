package hints

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// wanted is the set of events that a directory is watched for. A file that was made by link(2) is
// reported as created, and never as closed.
const wanted = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// itself is the set of events about the watched directory itself, not an entry.
const itself = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// event is one report from the kernel: struct inotify_event.
type event struct {
	watch int32
	mask  uint32
	name  string // of an entry of the directory; "" for the directory itself
}

// parse calls visit for each event in p, and reports whether p contained only whole events.
func parse(p []byte, visit func(event)) bool {
	for len(p) >= unix.SizeofInotifyEvent {
		e := event{watch: int32(binary.NativeEndian.Uint32(p)), mask: binary.NativeEndian.Uint32(p[4:])}
		nameBytes := binary.NativeEndian.Uint32(p[12:])
		p = p[unix.SizeofInotifyEvent:]
		if uint64(nameBytes) > uint64(len(p)) {
			return false
		}
		name, _, _ := bytes.Cut(p[:nameBytes], []byte{0}) // padded with zeros
		e.name = string(name)
		p = p[nameBytes:]
		visit(e)
	}
	return len(p) == 0
}
