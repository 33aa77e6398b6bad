package index

import (
	"encoding/binary"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

const (
	damageHeadBytes = 3 * 8 // before the reason
	maxReasonBytes  = 4096
)

// appendDamage appends a damage without its reason's length, because the reason is the last field
// of its part.
func appendDamage(dst []byte, d *format.CorruptError) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.Record))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.OffsetBytes))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.RawOffset))
	return append(dst, cutReason(d.Reason)...)
}

func cutReason(s string) string { return s[:min(len(s), maxReasonBytes)] }

func parseDamage(p []byte) *format.CorruptError {
	return &format.CorruptError{
		Record:      int64(binary.LittleEndian.Uint64(p)),
		OffsetBytes: int64(binary.LittleEndian.Uint64(p[8:])),
		RawOffset:   int64(binary.LittleEndian.Uint64(p[16:])),
		Reason:      string(p[damageHeadBytes:]),
	}
}

// appendLosses appends the damages of a shard that is made of parts, each with the name of its part
// and the reason, and then the reasons with their counts.
func appendLosses(dst []byte, l *format.Losses) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(l.First)))
	for _, d := range l.First {
		short := *d
		short.Reason = ""
		dst = appendText(appendText(appendDamage(dst, &short), d.Part), d.Reason)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(l.Reasons)))
	for _, r := range l.Reasons {
		dst = appendText(binary.LittleEndian.AppendUint64(dst, r.Count), r.Text)
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	s = cutReason(s)
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// lossReader parses what appendLosses wrote. Invalid input sets bad.
type lossReader struct {
	rest []byte
	bad  bool
}

func (r *lossReader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	p := r.rest[:n]
	r.rest = r.rest[n:]
	return p
}

func (r *lossReader) count() uint32 {
	if p := r.take(4); !r.bad {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *lossReader) text() string { return string(r.take(uint64(r.count()))) }

func (r *lossReader) losses() (l format.Losses) {
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := r.take(damageHeadBytes)
		if r.bad {
			break
		}
		d := parseDamage(p)
		d.Part, d.Reason = r.text(), r.text()
		l.First = append(l.First, d)
	}
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := r.take(8)
		if r.bad {
			break
		}
		l.Reasons = append(l.Reasons, format.Reason{Text: r.text(), Count: binary.LittleEndian.Uint64(p)})
	}
	r.bad = r.bad || len(r.rest) > 0 || len(l.First) == 0
	return l
}

// checkDamage reports whether a blob's damage can be parsed.
func checkDamage(p []byte, flags uint32) bool {
	if flags&flagParts == 0 {
		return len(p) >= damageHeadBytes
	}
	r := lossReader{rest: p}
	r.losses()
	return !r.bad
}

// Losses returns what was left out of the shard; it is empty if nothing was.
func (b Blob) Losses() format.Losses {
	h := b.Header()
	if h.flags&flagDamaged == 0 {
		return format.Losses{}
	}
	p := b[h.layout().damage:][:h.damageBytes]
	if h.flags&flagParts != 0 {
		r := lossReader{rest: p}
		return r.losses()
	}
	var l format.Losses
	l.Add(parseDamage(p))
	return l
}
