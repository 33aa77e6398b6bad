package filter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/filter/command"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
)

// servers are the long-running processes. Each is started when it is first needed, and again after
// a failure. It is safe for concurrent use.
type servers struct {
	program *command.Program
	slots   chan *command.Server // nil: not running
	crashes *crashes
}

func newServers(p *command.Program, n int, c *crashes) *servers {
	s := &servers{program: p, slots: make(chan *command.Server, n), crashes: c}
	for range n {
		s.slots <- nil
	}
	return s
}

// ask passes a unit to an idle process.
func (s *servers) ask(ctx context.Context, shard, name string, data []byte, mostBytes int64) (reply command.Reply, err error) {
	var server *command.Server
	select {
	case server = <-s.slots:
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	defer func() { s.slots <- server }()
	if err := s.crashes.tooMany(); err != nil {
		return reply, err
	}
	if server == nil {
		if server, err = s.program.Serve(ctx, shard); err != nil {
			server = nil
			return reply, err
		}
	}
	if reply, err = server.Ask(ctx, shard, name, data, mostBytes); err == nil {
		s.crashes.end()
		return reply, nil
	}
	server.Kill()
	server = nil
	if ctx.Err() == nil {
		err = s.crashes.add(name, err)
	}
	return reply, err
}

// close ends the processes, which must be idle. An error means that one ended with a failure after
// it had answered everything.
func (s *servers) close(ctx context.Context) (err error) {
	var g errgroup.Group
	for range cap(s.slots) {
		if server := <-s.slots; server != nil {
			g.Go(func() error { return server.Close(ctx) })
		}
	}
	if err = g.Wait(); ctx.Err() != nil {
		return nil
	}
	return err
}

// outcome is the result of a unit.
type outcome struct {
	unit    units.Unit
	member  []byte
	records uint64 // of member
	dropped bool
	err     error
}

// tally counts the units of a shard.
type tally struct {
	in, out, lost uint64 // lost: units that the filter failed on
	records       uint64 // in the units that are out
	cut           bool   // filtered by units, so that records is known
}

// served filters a shard's units with long-running processes: several units at a time, with the
// results in the units' order.
func (r *run) served(ctx context.Context, s *source) (x *result, err error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	d, err := r.newDraft()
	if err != nil {
		return nil, err
	}
	w, err := r.cutter.NewWriter(s.Codec, d)
	if err != nil {
		d.discard()
		return nil, err
	}
	order := make(chan chan outcome, cap(r.tokens)) // as many as there are tokens
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(order)
		err := r.cutter.Each(gctx, s.name(), s.Codec, f, s.Object.SizeBytes, func(u units.Unit) error {
			select {
			case r.tokens <- struct{}{}:
			case <-gctx.Done():
				return gctx.Err()
			}
			one := make(chan outcome, 1)
			order <- one
			g.Go(func() error {
				one <- r.unit(gctx, s, u)
				return nil
			})
			return nil
		})
		return damaged(gctx, s, err)
	})
	t := tally{cut: true}
	for one := range order { // drained in any case: each has a token
		o := <-one
		<-r.tokens
		t.in++
		if err == nil {
			if err = r.put(w, o, &t); err != nil {
				cause := err
				g.Go(func() error { return cause }) // ends the others
			}
		}
	}
	if waited := g.Wait(); waited != nil {
		err = waited // the first error: that of a cancelled unit may be a consequence
	}
	return r.conclude(ctx, s, f, d, w, t, err)
}

// noneLeft returns an error if nothing is left of a shard for other reasons than the filter's
// decision.
func noneLeft(s *source, t tally) error {
	if t.out > 0 || t.lost == 0 {
		return nil
	}
	return &Failure{Shard: s.name(), Err: fmt.Errorf("nothing is left of it: the filter failed on %d of its %d units", t.lost, t.in)}
}

// put writes the outcome of a unit, and counts it.
func (r *run) put(w *units.Writer, o outcome, t *tally) error {
	switch {
	case o.err != nil:
		t.lost++
		return r.loseUnit(o.err)
	case o.dropped:
		return nil
	}
	t.out++
	t.records += o.records
	return w.Write(o.unit, o.member)
}

// unit asks for one unit, and once more if that fails.
func (r *run) unit(ctx context.Context, s *source, u units.Unit) (o outcome) {
	o.unit = u
	data, err := []byte(nil), u.Err
	if err == nil {
		data, err = r.cutter.Data(u)
	}
	if err != nil {
		o.err = unitDamaged(s, u, err)
		return o
	}
	for range tries {
		var reply command.Reply
		reply, err = r.servers.ask(ctx, s.name(), u.Name, data, r.UnitBytes)
		switch {
		case err != nil:
		case reply.Status == command.ReplyDrop:
			o.dropped = true
			return o
		case reply.Status == command.ReplyFailed:
			err = errReply(reply)
		default:
			if o.member, o.records, err = r.cutter.FromData(reply.Body); err == nil {
				return o
			}
			err = errRefused(err)
		}
		if ctx.Err() != nil || isHopeless(err) {
			break
		}
	}
	o.err = unitFailed(ctx, s, u, err)
	return o
}

// unitFailed returns err as a Failure of a unit; but an error that every unit would cause as a
// HopelessError.
func unitFailed(ctx context.Context, s *source, u units.Unit, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isHopeless(err):
		return &HopelessError{err}
	}
	return &Failure{Shard: s.name(), Unit: u.Name, Err: err}
}

// unitDamaged returns err as a Failure of a unit that can't be read.
func unitDamaged(s *source, u units.Unit, err error) error {
	return &Failure{Shard: s.name(), Unit: u.Name, Err: err, Source: true}
}

// isHopeless reports whether every other unit would cause the error too.
func isHopeless(err error) bool {
	for _, hopeless := range []error{command.ErrStart, command.ErrHandshake, errStranger, errCrashes} {
		if errors.Is(err, hopeless) {
			return true
		}
	}
	return false
}

// HopelessError is an error that every unit would cause: the program is not a filter, or can't be
// started.
type HopelessError struct{ Err error }

func (e *HopelessError) Error() string { return "the command: " + e.Err.Error() }
func (e *HopelessError) Unwrap() error { return e.Err }

// crashes counts consecutive crashes of a program without any success between. It is safe for
// concurrent use.
type crashes struct {
	most int64

	mu     sync.Mutex
	inARow int64
	last   error // error for too many crashes; nil if there are not
}

// leastCrashes is how many consecutive crashes show that a program crashes on all units, not only
// on some: it is fifty units, each tried twice.
const leastCrashes = 100

// newCrashes returns a counter for that many processes, all of which may crash a few times for one
// reason.
func newCrashes(processes int) *crashes {
	return &crashes{most: max(leastCrashes, 4*int64(processes))}
}

// errCrashes is wrapped by errors about a program that has had no success for long. It would only
// be restarted again and again.
var errCrashes = errors.New("it crashes on everything that it is given")

// tooMany returns an error if the program must not be started any more. It has the text of the last
// crash, because the first caller ends the run.
func (c *crashes) tooMany() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// add counts a crash, and returns its error; if there are too many, one that states that.
func (c *crashes) add(name string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inARow++; c.inARow < c.most {
		return err
	}
	c.last = fmt.Errorf("%w: %d times in a row, the last time on %s: %w: try it by hand on one unit (lsiofs help filter)", errCrashes, c.inARow, name, err)
	return c.last
}

// end records a success of the program.
func (c *crashes) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inARow, c.last = 0, nil
}
