package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// patience bounds one request, or an operation of few requests.
	patience = 30 * time.Second
	// tellAfter is how long to wait for a request before reporting that.
	tellAfter = 3 * time.Second
	// keysPatience is how long to wait for credentials: the user may have to sign in.
	keysPatience = 5 * time.Minute
)

// patiently calls ask with a context that bounds its waiting. It reports long waits, and returns an
// error that explains them if nothing arrives.
func (s *Service) patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	for began := time.Now(); ; {
		err, silent := s.once(ctx, ask)
		if !silent {
			return err
		}
		before := s.before()
		switch {
		case before == "":
			return fmt.Errorf("%s: no answer for %v", s.host, patience)
		case time.Since(began) >= keysPatience:
			return fmt.Errorf("%s did not come within %v", before, keysPatience)
		}
	}
}

// once is one call of ask. It also returns whether nothing has arrived.
func (s *Service) once(ctx context.Context, ask func(ctx context.Context) error) (err error, silent bool) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if s.trouble != nil {
		timer := time.AfterFunc(tellAfter, func() {
			t := remote.Trouble{For: s.host, Why: fmt.Errorf("no answer for %v", tellAfter), Waited: tellAfter, Left: patience - tellAfter}
			if before := s.before(); before != "" {
				t.For, t.Why, t.Left = before, nil, keysPatience-tellAfter
			}
			s.trouble(t)
		})
		defer timer.Stop()
	}
	err = ask(bounded)
	return err, err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded)
}

// before returns what must complete before a request can be sent, or "" for nothing.
func (s *Service) before() string {
	if s.credentials == nil {
		return ""
	}
	return s.credentials.Waiting()
}
