package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxSampleOf bounds Sample.Of (pipeline/order/SELECTION.md, Samples).
const MaxSampleOf = 65536

// Subsample selects one n-th of the records for each epoch, another one each time, so that n epochs
// are one pass (pipeline/order/SELECTION.md, Samples). The zero value selects all of them. Equal
// values select the same records.
type Subsample struct {
	Of   uint64 // n; 0: all records
	Seed uint64
}

// Or returns s, or the zero Sample if it selects all records: the seed has no effect then.
func (s Subsample) Or() Subsample {
	if s.Of <= 1 {
		return Subsample{}
	}
	return s
}

// Phase returns which of the n parts an epoch has; 0 if there is only one.
func (s Subsample) Phase(epoch uint64) uint64 {
	if s.Of <= 1 {
		return 0
	}
	return epoch % s.Of
}

// String returns the selected share, such as "1/39".
func (s Subsample) String() string { return "1/" + strconv.FormatUint(max(s.Of, 1), 10) }

// ParseSample parses "1/n", n from 1 to 65536. 1/1 is the zero value.
func ParseSample(text string) (Subsample, error) {
	if digits, ok := strings.CutPrefix(text, "1/"); ok {
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n >= 1 && n <= MaxSampleOf && strconv.FormatUint(n, 10) == digits {
			return Subsample{Of: n}.Or(), nil
		}
	}
	return Subsample{}, fmt.Errorf("%q is not a share of a dataset: write 1/n with n between 1 and %d, such as 1/39", text, MaxSampleOf)
}

func (s Subsample) validate(p *problems) {
	if s.Of > MaxSampleOf {
		p.addf("--sample (%s) must be 1/n with n between 1 and %d", s, MaxSampleOf)
	}
}
