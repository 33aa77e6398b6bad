package s3

import (
	"context"
	"time"
)

// Identity describes where the credentials come from that requests are signed with. It does not
// contain them.
type Identity struct {
	From    string    // description; "" if requests are not signed
	Expires time.Time // zero: never, or unknown
}

// Identity describes the credentials that requests are signed with. The error lists each place that
// was tried.
func (s *Source) Identity(ctx context.Context) (Identity, error) {
	if s.options.Anonymous {
		return Identity{}, nil
	}
	value, err := s.keys.get(ctx)
	if err != nil {
		return Identity{}, err
	}
	return Identity{From: s.keys.from().name, Expires: value.Expiration}, nil
}

// Region returns the region that requests are signed for; "" before the first request if no setting
// has it.
func (s *Source) Region() string { return s.where().region }
