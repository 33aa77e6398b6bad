package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

// orderNumbers are the numeric fields of the document's order, in the order in which they are
// written (shuffle comes after seed).
var orderNumbers = [...]struct {
	name string
	of   func(*spec.Order) *uint64
}{
	{"seed", func(o *spec.Order) *uint64 { return &o.Seed }},
	{"size", func(o *spec.Order) *uint64 { return &o.SizeRecords }},
	{"lanes", func(o *spec.Order) *uint64 { return &o.Lanes }},
	{"groups", func(o *spec.Order) *uint64 { return &o.Groups }},
	{"batch", func(o *spec.Order) *uint64 { return &o.Batch }},
	{"chunk_bytes", func(o *spec.Order) *uint64 { return &o.ChunkBytes }},
	{"chunk_records", func(o *spec.Order) *uint64 { return &o.ChunkRecords }},
}

var (
	documentFields = []string{"version", "dataset", "run", "order", "epoch", "done", "samples"}
	fullFields     = []string{"version", "dataset", "order", "epoch", "done"}
	orderFields    = []string{"seed", "shuffle", "size", "lanes", "groups", "batch", "chunk_bytes", "chunk_records", "split", "length", "sample"}
	orderNeeds     = orderFields[:8]
	doneFields     = []string{"batch", "deal", "consumed"}
	doneNeeds      = []string{"batch", "consumed"}
)

// document is a document of any form.
type document struct {
	state   State
	samples uint64
	has     []string // names of its fields
}

// full reports whether the document has the full form, judging by the fields read so far.
func (d *document) full() bool {
	return slices.ContainsFunc(d.has, func(f string) bool { return f != "epoch" && f != "samples" })
}

// Parse parses the full form only, strictly. Errors are *Refusal.
func Parse(doc []byte) (State, error) {
	d, err := read(doc)
	if err != nil {
		return State{}, err
	}
	if !d.full() {
		return State{}, &Refusal{Reason: "it is a short form, without dataset and order; the full form is needed here"}
	}
	return d.state, nil
}

// Possible returns nil if doc is a document, or the beginning of one; otherwise a *Refusal. The
// control file calls it after every write. It checks syntax, names, types and bounds, without a
// dataset.
func Possible(doc []byte) error {
	_, err := read(doc)
	if errors.Is(err, ErrIncomplete) {
		return nil
	}
	return err
}

// read parses any form. Its errors are *Refusal; they wrap ErrIncomplete if and only if more bytes
// could complete the document.
func read(doc []byte) (*document, error) {
	if len(doc) > MaxBytes {
		return nil, &Refusal{Reason: fmt.Sprintf("it has %d bytes, more than the limit of %d", len(doc), MaxBytes), cause: ErrTooLarge}
	}
	if bytes.HasPrefix(doc, []byte("\xef\xbb\xbf")) {
		return nil, &Refusal{Reason: "it begins with a byte order mark: write it as UTF-8 without one"}
	}
	d := &document{}
	s := newScanner(doc)
	err := d.read(s)
	if err == nil {
		err = explain("", s.End())
	}
	if err == nil {
		return d, nil
	}
	refusal := &Refusal{Reason: err.Error()}
	for _, cause := range []error{ErrIncomplete, ErrTooLarge} {
		if errors.Is(err, cause) {
			refusal.cause = cause
		}
	}
	return nil, refusal
}

func (d *document) read(s *scanner) error {
	err := s.object("the document", documentFields, func(name string) error {
		d.has = append(d.has, name)
		if d.full() && slices.Contains(d.has, "samples") {
			return errors.New("samples belongs to the short form, {\"epoch\": E, \"samples\": n}, and can't be combined with other fields")
		}
		return d.field(s, name)
	})
	if err != nil {
		return err
	}
	if d.full() {
		return missing("the document", d.has, fullFields)
	}
	return missing("the document", d.has, []string{"epoch"})
}

func (d *document) field(s *scanner, name string) (err error) {
	switch name {
	case "version":
		if _, err = s.number("version", Version, Version); err != nil && !errors.Is(err, ErrIncomplete) {
			err = fmt.Errorf("version is %s, but this lsiofs reads version %d: use the release that wrote the document", plain(s.Token()), Version)
		}
	case "dataset":
		d.state.Dataset, err = s.text("dataset", nil)
	case "run":
		d.state.Run, err = readRun(s)
	case "order":
		d.state.Order, err = readOrder(s)
	case "epoch":
		d.state.Epoch, err = s.number("epoch", 0, math.MaxUint64)
	case "samples":
		d.samples, err = s.number("samples", 0, order.MaxRecords)
	case "done":
		d.state.Done, err = readDone(s)
	}
	return err
}

// runDigits is the number of hexadecimal digits in a run's name.
const runDigits = 32

func readRun(s *scanner) (string, error) {
	name, err := s.text("run", nil)
	if err != nil {
		return "", err
	}
	if len(name) != runDigits || strings.Trim(name, "0123456789abcdef") != "" {
		return "", fmt.Errorf("run (%q) must be %d hexadecimal digits, in lower case", name, runDigits)
	}
	return name, nil
}

func readOrder(s *scanner) (o spec.Order, err error) {
	var has []string
	err = s.object("order", orderFields, func(name string) (err error) {
		has = append(has, name)
		switch name {
		case "split":
			o.Split, err = readSplit(s)
			return err
		case "length":
			o.Length, err = s.number("order.length", 1, order.MaxRecords)
			return err
		case "sample":
			o.Sample, err = readSample(s)
			return err
		case "shuffle":
			shuffle, err := s.text("order.shuffle", shuffles)
			o.Shuffle = spec.Shuffle(shuffle)
			return err
		}
		for _, f := range orderNumbers {
			if f.name == name {
				n, err := s.number("order."+name, 0, math.MaxUint64)
				*f.of(&o) = n
				return err
			}
		}
		panic("checkpoint: no reader for order." + name)
	})
	if err != nil {
		return o, err
	}
	return o, missing("order", has, orderNeeds)
}

var (
	shuffles = []string{string(spec.ShuffleReservoir), string(spec.ShuffleBlock), string(spec.ShuffleFull), string(spec.ShuffleNone)}
	dealings = []string{string(spec.DealInterleaved), string(spec.DealContiguous)}
)

func readDone(s *scanner) ([]order.Done, error) {
	done := []order.Done{}
	err := s.list("done", func(i int) error {
		if i == MaxEntries {
			return fmt.Errorf("done has more than %d entries (%w): finish the epoch, or start from the short form with samples", MaxEntries, ErrTooLarge)
		}
		d, err := readEntry(s, fmt.Sprintf("done[%d]", i))
		done = append(done, d)
		return err
	})
	return done, err
}

func readEntry(s *scanner, where string) (d order.Done, err error) {
	var has []string
	d.Dealing = spec.DealInterleaved
	err = s.object(where, doneFields, func(name string) (err error) {
		has = append(has, name)
		switch name {
		case "batch":
			d.Batch, err = s.number(where+".batch", 1, order.MaxRecords)
		case "deal":
			var deal string
			deal, err = s.text(where+".deal", dealings)
			d.Dealing = spec.Dealing(deal)
		case "consumed":
			d.Consumed, err = readConsumed(s, where+".consumed")
		}
		return err
	})
	if err != nil {
		return d, err
	}
	return d, missing(where, has, doneNeeds)
}

func readConsumed(s *scanner, where string) ([]uint64, error) {
	var consumed []uint64
	err := s.list(where, func(w int) error {
		if w == spec.MaxWorkers {
			return fmt.Errorf("%s has more than %d numbers, one per worker", where, spec.MaxWorkers)
		}
		n, err := s.number(where, 0, order.MaxRecords)
		consumed = append(consumed, n)
		return err
	})
	if err == nil && len(consumed) == 0 {
		err = fmt.Errorf("%s must have one number per worker, 1 to %d of them", where, spec.MaxWorkers)
	}
	return consumed, err
}

// missing returns an error that names the fields in needs that has lacks, or nil.
func missing(where string, has, needs []string) error {
	var lacks []string
	for _, name := range needs {
		if !slices.Contains(has, name) {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%s lacks %s", where, strings.Join(lacks, ", "))
	}
	return nil
}

var sampleFields = []string{"of", "seed"}

// readSample parses order.sample. A sample of all records becomes the zero value.
func readSample(s *scanner) (sample spec.Subsample, err error) {
	var has []string
	err = s.object("order.sample", sampleFields, func(name string) (err error) {
		has = append(has, name)
		if name == "of" {
			sample.Of, err = s.number("order.sample.of", 1, spec.MaxSampleOf)
		} else {
			sample.Seed, err = s.number("order.sample.seed", 0, math.MaxUint64)
		}
		return err
	})
	if err != nil {
		return sample, err
	}
	return sample.Or(), missing("order.sample", has, sampleFields)
}

func appendSample(doc []byte, sample spec.Subsample) []byte {
	doc = append(doc, `{"of": `...)
	doc = strconv.AppendUint(doc, sample.Of, 10)
	doc = append(doc, `, "seed": `...)
	doc = strconv.AppendUint(doc, sample.Seed, 10)
	return append(doc, '}')
}

// sampleWords describes which share of the records an epoch has.
func sampleWords(sample spec.Subsample) string {
	if sample == (spec.Subsample{}) {
		return "all records"
	}
	return string(appendSample(nil, sample))
}

var (
	splitFields = []string{"part", "seed", "by"}
	splitUnits  = []string{string(spec.SplitByRecord), string(spec.SplitByShard), string(spec.SplitByUnit)}
)

// readSplit parses order.split. A part that is the whole dataset becomes the zero value.
func readSplit(s *scanner) (split spec.Split, err error) {
	var has []string
	err = s.object("order.split", splitFields, func(name string) (err error) {
		has = append(has, name)
		var text string
		switch name {
		case "part":
			if text, err = s.text("order.split.part", nil); err == nil {
				split.Part, err = spec.ParsePart(text)
			}
		case "seed":
			split.Seed, err = s.number("order.split.seed", 0, math.MaxUint64)
		case "by":
			text, err = s.text("order.split.by", splitUnits)
			split.By = spec.SplitBy(text)
		}
		return err
	})
	if err != nil {
		return split, err
	}
	return split.Or(), missing("order.split", has, splitFields)
}

func appendSplit(doc []byte, split spec.Split) []byte {
	doc = append(doc, `{"part": `...)
	doc = appendText(doc, split.Part.String())
	doc = append(doc, `, "seed": `...)
	doc = strconv.AppendUint(doc, split.Seed, 10)
	doc = append(doc, `, "by": `...)
	doc = appendText(doc, string(split.By))
	return append(doc, '}')
}

// splitWords describes which part of the dataset a split selects.
func splitWords(split spec.Split) string {
	if split == (spec.Split{}) {
		return "the whole dataset"
	}
	return string(appendSplit(nil, split))
}

// scanner parses documents strictly. It distinguishes a document that is incomplete (ErrIncomplete)
// from one that no further bytes could make valid: the control file is written in pieces of any
// size. Each value is read by a method for its expected type. Nothing is skipped, and nothing
// recurses, so depth and size of unexpected input don't matter.
type scanner struct{ *strictjson.Scanner }

func newScanner(doc []byte) *scanner { return &scanner{strictjson.New(doc, 0)} }

var errEnd = fmt.Errorf("%w: it ends too early", ErrIncomplete)

// explain returns an error of the embedded Scanner with where it occurred; where may be "".
func explain(where string, err error) error {
	wrong, ok := errors.AsType[*strictjson.SyntaxError](err)
	switch {
	case !ok:
		return err
	case wrong.Cut:
		return errEnd
	}
	return errors.New(strings.TrimPrefix(where+": "+wrong.Reason, ": "))
}

// object parses an object whose fields have some of these names; field parses the value of one.
// where describes the object in errors.
func (s *scanner) object(where string, names []string, field func(name string) error) error {
	seen, at := make([]string, 0, len(names)), where
	err := s.Members('{', func(int) error {
		name, err := s.text("the name of a field of "+where, names)
		if err != nil {
			return err
		}
		if slices.Contains(seen, name) {
			return fmt.Errorf("%s has the field %q twice", where, name)
		}
		seen, at = append(seen, name), where+", after "+name
		if _, err := s.Expect(":"); err != nil {
			return explain(where+", after the name "+name, err)
		}
		return field(name)
	})
	return explain(at, err)
}

// list parses a list; element parses its i-th element.
func (s *scanner) list(where string, element func(i int) error) error {
	return explain(where, s.Members('[', element))
}

// number parses an integer from low to high. Fractions and exponents are rejected whatever their
// value.
func (s *scanner) number(where string, low, high uint64) (uint64, error) {
	if _, err := s.Peek(); err != nil {
		return 0, explain(where, err)
	}
	refuse := func() (uint64, error) {
		return 0, fmt.Errorf("%s (%s) must be a whole number between %d and %d", where, plain(s.Token()), low, high)
	}
	rest := s.Rest()
	var n uint64
	digits := 0
	for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
		digit := uint64(rest[digits] - '0')
		if zero := digits > 0 && rest[0] == '0'; zero || digit > high || n > (high-digit)/10 {
			return refuse()
		}
		n = n*10 + digit
	}
	switch {
	case digits == len(rest):
		return 0, errEnd
	case digits == 0 || strings.IndexByte(" \t\r\n,]}", rest[digits]) < 0 || n < low:
		return refuse()
	}
	s.Advance(digits)
	return n, nil
}

// plain returns a token unchanged, or quoted if it is not printable.
func plain(token string) string {
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' && r != '…' }) {
		return fmt.Sprintf("%q", token)
	}
	return token
}

// maxTextBytes bounds arbitrary strings: fingerprints have 64 bytes.
const maxTextBytes = 256

// text parses a string: one of allowed, or any if that is nil. The strings of documents are names
// and fingerprints, so only printable ASCII without escapes is accepted.
func (s *scanner) text(where string, allowed []string) (string, error) {
	c, err := s.Peek()
	if err != nil {
		return "", explain(where, err)
	}
	if c != '"' {
		return "", fmt.Errorf("%s must be a string, not %q", where, s.Token())
	}
	rest := s.Rest()[1:]
	end := 0
	for ; end < len(rest) && rest[end] != '"'; end++ {
		if c := rest[end]; c < ' ' || c > '~' || c == '\\' {
			return "", fmt.Errorf("%s must be plain ASCII without escapes, not %q", where, rest[:end+1])
		}
		if end == maxTextBytes {
			return "", fmt.Errorf("%s is longer than %d bytes", where, maxTextBytes)
		}
	}
	text := string(rest[:end])
	complete := end < len(rest)
	if allowed != nil && !slices.ContainsFunc(allowed, func(a string) bool {
		return a == text || !complete && strings.HasPrefix(a, text)
	}) {
		return "", fmt.Errorf("%s (%q) must be one of %s", where, text, strings.Join(allowed, ", "))
	}
	if !complete {
		return "", errEnd
	}
	s.Advance(1 + end + 1)
	return text, nil
}
