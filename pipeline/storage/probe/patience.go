package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

const (
	// patience bounds one request, or what is made of few.
	patience = 30 * time.Second
	// tellAfter is how long a request is waited for until that is told.
	tellAfter = 3 * time.Second
	// keysPatience is for how long credentials are waited for: somebody may have to sign in.
	keysPatience = 5 * time.Minute
)

// patiently calls ask, whose context bounds what it waits for. It tells that it waits, and gives an error
// in words where nothing comes.
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

// once is one call of ask. It reports whether nothing has come.
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

// before is what has to come before a request can be sent, "" for nothing.
func (s *Service) before() string {
	if s.credentials == nil {
		return ""
	}
	return s.credentials.Waiting()
}
