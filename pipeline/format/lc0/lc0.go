// Package lc0 finds the frames of Leela Chess Zero's training games.
//
//	game:    a .gz file; decoded, a sequence of frames of one version
//	shard:   one game, or a tar of games
//	frame:   u32le version │ [u32le input format] │ 1858 × f32le policy │
//	         104 × u64le planes │ 7 bytes │ [i8 result] │ values
//
//	version  bytes  policy at  result            values, 4 bytes each, from the end of the 8 bytes after the planes
//	3        8276   4          i8 before values  none
//	4        8292   4          i8 before values  root q, best q, root d, best d
//	5        8308   8          i8 before values  the same, then root m, best m, plies left
//	6        8356   8          values 7 and 8    the same, then result q, result d, played q, d, m, original q, d, m
//	                                             (these may be NaN), visits, two indexes of 2 bytes, policy kld, reserved
//	7        8396   8          values 7 and 8    the same up to policy kld, then q st, d st, two indexes, 8 reserved
//
// Each game is intact or damaged independently. A game is left out if it can't be decompressed, if
// it is empty, or if its length is not a multiple of its frames' size.
//
// With --lc0-check, a frame is left out for one of these reasons:
//
//   - Its version is not that of its game's first frame.
//   - The policy or a value has a NaN or an infinity. Values that may be NaN, and those from q st
//     on, are not checked.
//   - Its result is outside -1 … 1.
//   - It has no legal move. A move is legal if its share of the policy is 0 or more; in version 3,
//     if it is above 0.
//
// Sources: LeelaChessZero/lc0, src/trainingdata/trainingdata_v6.h and _v7.h, and its writer
// trainingdata.cc; LeelaChessZero/lczero-training, tf/chunkparser.py for versions 3 to 5.
package lc0

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Format is the format.Format of lc0: its streams consist of the frames' bytes. Rows is the format
// for streams of tensors.
type Format struct {
	check bool
	mixed bool // games may be of different versions
}

var (
	_ format.OwnCodecs = Format{}
	_ format.Uniform   = Format{}
	_ format.Unitary   = Format{}
	_ format.Opaque    = Format{}
)

// New returns a Format that checks frames if f asks for it.
func New(f spec.Format) Format { return Format{check: f.Lc0Check} }

// Name returns "lc0".
func (Format) Name() string { return "lc0" }

// AnyBytes implements format.Opaque: a shard is a game or a tar of games, whatever its codec.
func (Format) AnyBytes() {}

// SplitByUnit returns true: frames of one game are much alike.
func (Format) SplitByUnit() bool { return true }

// StreamExtension returns ".bin".
func (Format) StreamExtension(string) string { return ".bin" }

// Takes reports whether a name ends in .gz or .tar.
func (Format) Takes(path string) bool {
	base := path[strings.LastIndexByte(path, '/')+1:]
	return base != ".gz" && base != ".tar" && (strings.HasSuffix(base, ".gz") || isTar(base))
}

func isTar(path string) bool { return strings.HasSuffix(path, ".tar") }

// Codec returns Tar for names that end in .tar, else Game.
func (Format) Codec(path string, _ format.Codec) format.Codec {
	if isTar(path) {
		return Tar{}
	}
	return Game{}
}

// frameBytes are the sizes of the known versions.
var frameBytes = map[uint32]int64{3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}

// versionBytes is the size of the version at the beginning of a frame.
const versionBytes = 4

// Sniff reports whether head begins a game: at least one whole frame of a known version, and no
// frame of another version after it.
func (Format) Sniff(head []byte) bool {
	if len(head) < versionBytes {
		return false
	}
	version := binary.LittleEndian.Uint32(head)
	size, known := frameBytes[version]
	if !known || int64(len(head)) < size {
		return false
	}
	for at := size; at+versionBytes <= int64(len(head)); at += size {
		if binary.LittleEndian.Uint32(head[at:]) != version {
			return false
		}
	}
	return true
}

// Reasons for leaving out games.
const (
	reasonEmpty   = "the game is empty"
	reasonVersion = "the first frame's version is not one of 3 to 7"
	reasonLength  = "the game's length is not a multiple of its frames' size"
)

// Index implements format.Format. It emits the frames of a game after it has read the game's end. A
// source that is not made of parts is one game.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	_, err := f.IndexKind(ctx, src, emit)
	return err
}

// IndexKind implements format.Uniform. A kind is, for example, "version 6", or, for a tar of mixed
// games, "versions 4, 6".
func (f Format) IndexKind(ctx context.Context, src format.Source, emit func(format.Extent) error) (string, error) {
	first := firstGame{mixed: f.mixed}
	var err error
	if parts, ok := src.(*format.Parts); ok {
		err = f.games(ctx, parts, &first, emit)
	} else {
		g := game{check: f.check}
		if err = g.read(ctx, src, nil); err == nil {
			first.all = first.all.with(g.version)
			err = g.emit(emit)
		}
	}
	return first.all.kind(), err
}

// games indexes a shard game by game.
func (f Format) games(ctx context.Context, parts *format.Parts, first *firstGame, emit func(format.Extent) error) error {
	var g game
	for {
		if err := parts.NextPart(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		g = game{check: f.check, runs: g.runs[:0]}
		err := g.read(ctx, parts, parts)
		if damage, ok := errors.AsType[*format.CorruptError](err); ok {
			parts.Lose(damage)
			continue
		}
		if err == nil {
			err = first.same(&g, parts)
		}
		if err == nil {
			err = g.emit(emit)
		}
		if err != nil {
			return err
		}
	}
}

// firstGame is the first game of a shard: all others have its version, unless they may be mixed.
type firstGame struct {
	mixed   bool
	version uint32
	name    string
	all     versions // of the games so far
}

func (f *firstGame) same(g *game, parts *format.Parts) error {
	switch {
	case g.check && len(g.runs) == 0:
	case f.version == 0:
		f.version, f.name = g.version, parts.PartName()
		f.all = f.all.with(g.version)
	case f.version == g.version || f.mixed:
		f.all = f.all.with(g.version)
	default:
		return &format.RefusedError{OffsetBytes: g.begin, Reason: fmt.Sprintf(
			"%s has frames of version %d, and %s before it of version %d: mount with --as tensors, which reads several versions, or pack one version a tar", parts.PartName(), g.version, f.name, f.version)}
	}
	return nil
}

// game is a game that is being read.
type game struct {
	check   bool
	begin   int64 // in the decoded shard
	version uint32
	size    int64 // of a frame
	frames  int64
	runs    []run // of frames that are kept, if frames are checked
}

// run is frames first … last-1.
type run struct{ first, last int64 }

// read reads a game to its end. Damage of the game is a *format.CorruptError. Damaged frames are
// passed to parts, or damage the whole game if that is nil.
func (g *game) read(ctx context.Context, src format.Source, parts *format.Parts) error {
	g.begin = src.OffsetBytes()
	head, err := src.Window(versionBytes)
	switch {
	case err != nil && err != io.EOF:
		return err
	case len(head) == 0:
		return format.Corrupt(0, g.begin, reasonEmpty)
	case len(head) == versionBytes || err == nil:
		g.version = binary.LittleEndian.Uint32(head)
	}
	known := false
	if g.size, known = frameBytes[g.version]; !known {
		if err := pass(src); err != nil { // damage that the codec finds takes precedence
			return err
		}
		return format.Corrupt(0, g.begin, reasonVersion)
	}
	if g.check {
		return g.readFrames(ctx, src, parts)
	}
	if err := pass(src); err != nil {
		return err
	}
	g.frames = (src.OffsetBytes() - g.begin) / g.size
	return g.whole(src.OffsetBytes())
}

// pass skips everything up to the end.
func pass(src format.Source) error {
	for {
		at, err := src.Window(1)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := src.Discard(int64(len(at))); err != nil {
			return err
		}
	}
}

// whole returns an error unless a game that ends at end consists of whole frames.
func (g *game) whole(end int64) error {
	if (end-g.begin)%g.size == 0 {
		return nil
	}
	return format.Corrupt(0, g.begin, reasonLength)
}

// readFrames checks every frame.
func (g *game) readFrames(ctx context.Context, src format.Source, parts *format.Parts) error {
	var lacks []lack
	for ; ; g.frames++ {
		if g.frames%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := src.OffsetBytes()
		frame, err := src.Window(int(g.size))
		if err == io.EOF {
			if err := g.whole(at + int64(len(frame))); err != nil {
				return err
			}
			return g.tell(lacks, parts)
		}
		if err != nil {
			return err
		}
		reason := checkFrame(frame[:g.size], g.version)
		switch {
		case reason == "":
			g.keep()
		default:
			lacks = append(lacks, lack{g.frames, reason})
		}
		if err := src.Discard(g.size); err != nil {
			return err
		}
	}
}

// lack is an invalid frame.
type lack struct {
	frame  int64
	reason string
}

// keep adds the current frame to those that are kept.
func (g *game) keep() {
	if n := len(g.runs); n > 0 && g.runs[n-1].last == g.frames {
		g.runs[n-1].last++
		return
	}
	g.runs = append(g.runs, run{g.frames, g.frames + 1})
}

// tell reports frames that are left out, after the game has turned out intact.
func (g *game) tell(lacks []lack, parts *format.Parts) error {
	for _, l := range lacks {
		d := format.Corrupt(-1, g.begin+l.frame*g.size, "%s", l.reason)
		d.Part = fmt.Sprintf("frame %d of the game", l.frame)
		if parts == nil {
			return d
		}
		parts.Lack(d)
	}
	return nil
}

// emit emits the game's frames.
func (g *game) emit(emit func(format.Extent) error) error {
	if !g.check {
		g.runs = append(g.runs, run{0, g.frames})
	}
	for _, r := range g.runs {
		for i := r.first; i < r.last; i++ {
			if err := emit(format.Extent{OffsetBytes: g.begin + i*g.size, SizeBytes: g.size}); err != nil {
				return err
			}
		}
	}
	return nil
}

// versions is a set of versions of frames, a bit each.
type versions uint32

func (v versions) with(version uint32) versions { return v | 1<<version }

// one reports whether there is exactly one.
func (v versions) one() bool { return v != 0 && v&(v-1) == 0 }

const (
	onePrefix  = "version "
	manyPrefix = "versions "
)

// kind returns the set as the kind of a shard: "version 6", "versions 4, 6", "" for none.
func (v versions) kind() string {
	var numbers []string
	for n := range uint32(32) {
		if v&(1<<n) != 0 {
			numbers = append(numbers, strconv.Itoa(int(n)))
		}
	}
	switch len(numbers) {
	case 0:
		return ""
	case 1:
		return onePrefix + numbers[0]
	}
	return manyPrefix + strings.Join(numbers, ", ")
}

// versionsOf parses what kind returned.
func versionsOf(kind string) (v versions, ok bool) {
	text, ok := strings.CutPrefix(kind, onePrefix)
	if !ok {
		text = strings.TrimPrefix(kind, manyPrefix)
	}
	for number := range strings.SplitSeq(text, ", ") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || frameBytes[uint32(n)] == 0 {
			return 0, false
		}
		v = v.with(uint32(n))
	}
	return v, v.kind() == kind
}

// SameKind reports whether both are of the same, single version. Shards of several versions, which
// only Rows accepts, are never of the same kind, not even as themselves.
func (Format) SameKind(a, b string) bool {
	v, ok := versionsOf(a)
	return ok && v.one() && a == b
}

// OfKind returns f: all versions are read in the same way.
func (f Format) OfKind(kind string) (format.Format, error) {
	if v, ok := versionsOf(kind); !ok || !v.one() {
		return nil, fmt.Errorf("%q is not a version of frames", kind)
	}
	return f, nil
}

// Reasons for leaving out frames.
const (
	reasonFrameVersion = "the frame's version is not that of the game's first frame"
	reasonPolicy       = "the policy has a value that is not finite"
	reasonNoMove       = "the policy has no legal move"
	reasonValue        = "a value is not finite"
	reasonResult       = "the result is outside of -1 to 1"
)

const (
	moves         = 1858
	policyBytes   = 4 * moves
	planesBytes   = 8 * 104
	countersBytes = 8 // castling, side, rule 50, invariances, result
)

// values is the location of a version's numbers: 4 bytes each, counted from the end of the
// counters.
type values struct {
	policyAt int
	finite   []int // indexes of those that must be finite
	results  []int // indexes of those within -1 … 1; none: the counters' last byte is the result
}

var valuesOf = map[uint32]values{
	3: {policyAt: 4},
	4: {policyAt: 4, finite: []int{0, 1, 2, 3}},
	5: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6}},
	6: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17}, results: []int{7, 8}},
	7: {policyAt: 8, finite: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 17}, results: []int{7, 8}},
}

// checkFrame returns why a frame is invalid, or "". It must have the size of that version.
func checkFrame(frame []byte, version uint32) string {
	if binary.LittleEndian.Uint32(frame) != version {
		return reasonFrameVersion
	}
	v := valuesOf[version]
	if reason := checkPolicy(frame[v.policyAt:][:policyBytes], version); reason != "" {
		return reason
	}
	counters := frame[v.policyAt+policyBytes+planesBytes:]
	rest := counters[countersBytes:]
	for _, i := range v.finite {
		if !finite(binary.LittleEndian.Uint32(rest[4*i:])) {
			return reasonValue
		}
	}
	if result := int8(counters[countersBytes-1]); len(v.results) == 0 && (result < -1 || result > 1) {
		return reasonResult
	}
	for _, i := range v.results {
		if r := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:])); r < -1 || r > 1 {
			return reasonResult
		}
	}
	return ""
}

// checkPolicy inspects two moves at a time: most are -1.
func checkPolicy(policy []byte, version uint32) string {
	const illegal = 0xbf800000bf800000
	legal := false
	for ; len(policy) >= 8; policy = policy[8:] {
		two := binary.LittleEndian.Uint64(policy)
		if two == illegal {
			continue
		}
		a, b := uint32(two), uint32(two>>32)
		if !finite(a) || !finite(b) {
			return reasonPolicy
		}
		legal = legal || isLegal(a, version) || isLegal(b, version)
	}
	if !legal {
		return reasonNoMove
	}
	return ""
}

// finite reports whether the bits of a float are those of a finite one.
func finite(bits uint32) bool { return bits&0x7f800000 != 0x7f800000 }

// isLegal reports whether a share is that of a legal move. Version 3 marks illegal moves only by 0.
func isLegal(bits, version uint32) bool {
	share := math.Float32frombits(bits)
	return share > 0 || share == 0 && version > 3
}
