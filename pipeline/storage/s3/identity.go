package s3

import (
	"context"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Identity says where the credentials come from that requests are signed with. It has none
// of them in it.
type Identity struct {
	From    string    // in words; "" where requests are not signed
	Expires time.Time // zero: they do not, or do not say
}

// Identity looks for credentials as requests do, once more. The error names each place that
// was looked at.
func (s *Source) Identity(ctx context.Context) (Identity, error) {
	if s.options.Anonymous {
		return Identity{}, nil
	}
	p, err := readProfile()
	if err != nil {
		return Identity{}, err
	}
	for _, o := range origins(p, s.options.Transport, s.local) {
		if !o.configured && o.provider == nil {
			continue
		}
		value, err := o.retrieve(ctx)
		switch {
		case err == nil:
			return Identity{From: o.name, Expires: value.Expiration}, nil
		case o.configured:
			return Identity{}, fmt.Errorf("credentials of %s: %w", o.name, remote.Clean(err))
		}
	}
	_, _, err = chain(p, s.options.Transport, s.local)(ctx) // which says where there are none
	return Identity{}, err
}

// Region is the region that requests are signed for; "" before the first request, where
// nobody has said it.
func (s *Source) Region() string { return s.where().region }
