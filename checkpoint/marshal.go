package checkpoint

import (
	"encoding/json"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Marshal returns the document. Numbers in consumed are right-aligned to the digits of records, so
// states that differ only in those numbers have documents of the same size. The result ends with a
// newline.
func (s State) Marshal(records uint64) []byte {
	width := digits(records)
	doc := make([]byte, 0, 512+sizeOf(s.Done, width))
	doc = append(doc, `{"version": `...)
	doc = strconv.AppendInt(doc, Version, 10)
	doc = append(doc, `, "dataset": `...)
	doc = appendText(doc, s.Dataset)
	if s.Run != "" {
		doc = append(doc, `, "run": `...)
		doc = appendText(doc, s.Run)
	}
	doc = append(doc, ",\n \"order\": "...)
	doc = appendOrder(doc, s.Order)
	doc = append(doc, ",\n \"epoch\": "...)
	doc = strconv.AppendUint(doc, s.Epoch, 10)
	doc = append(doc, `, "done": [`...)
	for i, d := range s.Done {
		if i > 0 {
			doc = append(doc, ", "...)
		}
		doc = appendDone(doc, d, width)
	}
	return append(doc, "]}\n"...)
}

func appendOrder(doc []byte, o spec.Order) []byte {
	doc = append(doc, `{"seed": `...)
	doc = strconv.AppendUint(doc, o.Seed, 10)
	doc = append(doc, `, "shuffle": `...)
	doc = appendText(doc, string(o.Shuffle))
	for _, f := range orderNumbers[1:] {
		doc = append(doc, `, "`...)
		doc = append(doc, f.name...)
		doc = append(doc, `": `...)
		doc = strconv.AppendUint(doc, *f.of(&o), 10)
	}
	if o.Split != (spec.Split{}) {
		doc = append(doc, `, "split": `...)
		doc = appendSplit(doc, o.Split)
	}
	if o.Length > 0 {
		doc = append(doc, `, "length": `...)
		doc = strconv.AppendUint(doc, o.Length, 10)
	}
	if o.Sample != (spec.Subsample{}) {
		doc = append(doc, `, "sample": `...)
		doc = appendSample(doc, o.Sample)
	}
	return append(doc, '}')
}

func appendDone(doc []byte, d order.Done, width int) []byte {
	doc = append(doc, `{"batch": `...)
	doc = strconv.AppendUint(doc, d.Batch, 10)
	if d.Dealing != "" && d.Dealing != spec.DealInterleaved {
		doc = append(doc, `, "deal": `...)
		doc = appendText(doc, string(d.Dealing))
	}
	doc = append(doc, `, "consumed": [`...)
	for w, n := range d.Consumed {
		if w > 0 {
			doc = append(doc, ", "...)
		}
		for pad := width - digits(n); pad > 0; pad-- {
			doc = append(doc, ' ')
		}
		doc = strconv.AppendUint(doc, n, 10)
	}
	return append(doc, "]}"...)
}

// appendText appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendText(doc []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be marshalled
	}
	return append(doc, quoted...)
}

// sizeOf returns the maximum size in bytes of a list of entries.
func sizeOf(done []order.Done, width int) int {
	size := 0
	for _, d := range done {
		size += entryBytes + len(d.Consumed)*(width+len(", "))
	}
	return size
}

// entryBytes is the maximum size of an entry without its numbers: `{"batch": <15 digits>, "deal":
// "contiguous", "consumed": []}, `.
const entryBytes = 80

func digits(n uint64) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}
