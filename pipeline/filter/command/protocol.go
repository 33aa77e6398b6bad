package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The protocol between lsiofs and a long-running filter: lsiofs sends units to the filter's stdin,
// and the filter replies on its stdout, one by one and in order. Numbers are little-endian.
//
//	lsiofs:  LSIOFSF1                                          filter:  LSIOFSF1
//	         u32 name length │ name │ u64 n │ n bytes                   u8 status │ u64 m │ m bytes
//	         …                                                          …
//	         (closes stdin)                                             (ends)
//
// The status is 0 (the bytes are the filtered unit), 1 (the unit is dropped, and m is 0) or 2 (the
// filter failed, and the bytes are the reason). A filter may begin its reply before it has read the
// whole unit.

// Hello is sent first by both sides.
const Hello = "LSIOFSF1"

// ReplyStatus is the kind of a reply.
type ReplyStatus byte

const (
	ReplyBytes  ReplyStatus = 0 // the filtered unit
	ReplyDrop   ReplyStatus = 1 // the unit is dropped
	ReplyFailed ReplyStatus = 2 // the reason why the filter failed
)

// maxReasonBytes bounds the text of a ReplyFailed.
const maxReasonBytes = 64 << 10

// errGarbage is wrapped by errors about bytes that are not a reply. After it nothing more can be
// read from that filter.
var errGarbage = errors.New("it does not speak the protocol")

// Reply is the reply to a unit.
type Reply struct {
	Status ReplyStatus
	Body   []byte
}

// appendRequest appends a request without the unit's own bytes; sizeBytes is their number.
func appendRequest(dst []byte, name string, sizeBytes int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(name)))
	dst = append(dst, name...)
	return binary.LittleEndian.AppendUint64(dst, uint64(sizeBytes))
}

// readHello reads a filter's first bytes. If there are none, the error is io.EOF.
func readHello(r io.Reader) error {
	var hello [len(Hello)]byte
	n, err := io.ReadFull(r, hello[:])
	if !bytes.HasPrefix([]byte(Hello), hello[:n]) {
		return fmt.Errorf("its first bytes are %q, and not %s: %w", hello[:n], Hello, errGarbage)
	}
	return err
}

// readReply reads a reply of at most mostBytes. It allocates memory as bytes arrive, not as
// announced. An end before the first byte is io.EOF, and a later one io.ErrUnexpectedEOF.
func readReply(r io.Reader, mostBytes int64) (Reply, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Reply{}, err
	}
	reply := Reply{Status: ReplyStatus(head[0])}
	n := binary.LittleEndian.Uint64(head[1:])
	switch {
	case reply.Status > ReplyFailed:
		return Reply{}, fmt.Errorf("a reply begins with %q, and its status is not 0, 1 or 2: %w", head, errGarbage)
	case reply.Status == ReplyDrop && n != 0:
		return Reply{}, fmt.Errorf("a reply that drops a unit has %d bytes: %w", n, errGarbage)
	case reply.Status == ReplyFailed && n > maxReasonBytes:
		return Reply{}, fmt.Errorf("a reason of %d bytes, of at most %d: %w", n, maxReasonBytes, errGarbage)
	case n > uint64(mostBytes):
		return Reply{}, fmt.Errorf("a reply of %d bytes, of at most %d (--unit-bytes): %w", n, mostBytes, errGarbage)
	}
	var body bytes.Buffer
	body.Grow(int(min(n, growBytes)))
	if _, err := io.CopyN(&body, r, int64(n)); err == io.EOF {
		return Reply{}, io.ErrUnexpectedEOF
	} else if err != nil {
		return Reply{}, err
	}
	reply.Body = body.Bytes()
	return reply, nil
}

// growBytes bounds the memory allocated for a reply before it arrives.
const growBytes = 1 << 20
