package checkpoint

import (
	"math"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

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
