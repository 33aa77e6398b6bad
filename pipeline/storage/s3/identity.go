package s3

import (
	"context"
	"time"
)

// Identity says where the credentials come from that requests are signed with. It has none
// of them in it.
type Identity struct {
	From    string    // in words; "" where requests are not signed
	Expires time.Time // zero: they do not, or do not say
}

// Identity gives the credentials that requests are signed with. The error names each place that
// was looked at.
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

// Region is the region that requests are signed for; "" before the first request, where
// nobody has said it.
func (s *Source) Region() string { return s.where().region }
