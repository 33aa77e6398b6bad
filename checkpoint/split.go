package checkpoint

import (
	"math"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

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
