package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Known is a listing from an earlier run, used while a service can't be reached. Reads name the
// versions in it, so an object that has changed since then gives an error, never other bytes.
type Known struct {
	Asked   time.Time // when the service was asked for it, or just before
	Objects []KnownObject
}

// KnownObject is an object and its validator as they were listed.
type KnownObject struct {
	storage.Object
	Validator Validator
}

// Identity is Storage.Identity for the object, in a dataset at root.
func (o KnownObject) Identity(root string) (url string, v Validator) {
	return identity(root, o.Object, o.Validator)
}

// UnansweredError means that a service gave no answer, or only temporary failures, for as long as
// the request was retried. It is never used for answers such as 403 or 404.
type UnansweredError struct{ Err error }

func (e *UnansweredError) Error() string { return e.Err.Error() }
func (e *UnansweredError) Unwrap() error { return e.Err }

// unanswered turns the last error of a request into an UnansweredError, if f is a temporary
// failure.
func unanswered(f finding, err error) error {
	if f.kind == kindAgain || f.kind == kindThrottled {
		return &UnansweredError{err}
	}
	return err
}

// listKnown is List for a listing from an earlier run.
func (s *Storage) listKnown(match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	l := &listing{s: s, match: match, entered: true}
	for _, o := range s.config.Known.Objects {
		if !l.enters(o.Path) || !match(o.Path, false) {
			continue
		}
		if err := visit(s.known(o)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Storage) known(o KnownObject) storage.Object {
	s.listed.put(o.Object, o.Validator)
	return o.Object
}

// Known returns objects as they were listed, with their validators. It returns an error if one of
// them was not listed like this or has no validator.
func (s *Storage) Known(objects []storage.Object) (*Known, error) {
	k := &Known{Asked: s.began, Objects: make([]KnownObject, len(objects))}
	for i, o := range objects {
		v, _, ok := s.listed.get(o)
		if !ok || v == "" {
			return nil, fmt.Errorf("%s has no version that could be told from another", o.Path)
		}
		k.Objects[i] = KnownObject{o, v}
	}
	return k, nil
}

// Later is a Source that is opened at its first use, and again if that fails: for a service that
// can't be reached yet. Its name is known. The zero value can't be used.
type Later struct {
	name string
	open func(context.Context) (Source, error)

	mu     sync.Mutex
	turn   chan struct{} // holds a value while the source is being opened
	source Source
}

// NewLater returns a Source that calls open when it is first used. The Source that open returns
// must have that name.
func NewLater(name string, open func(context.Context) (Source, error)) *Later {
	return &Later{name: name, open: open, turn: make(chan struct{}, 1)}
}

// opened returns the Source, opening it if necessary.
func (l *Later) opened(ctx context.Context) (Source, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	if s := l.now(); s != nil {
		return s, nil
	}
	s, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	if s.Name() != l.name {
		return nil, errors.Join(Refuse("the dataset lies at %s now, and lay at %s when it was listed: mount again", s.Name(), l.name), s.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.source = s
	return s, nil
}

func (l *Later) now() Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source
}

// List implements Source.
func (l *Later) List(ctx context.Context, page string, visit func(Listed) error) ([]string, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return s.List(ctx, page, visit)
}

// Head implements Source.
func (l *Later) Head(ctx context.Context, path string) (Listed, error) {
	s, err := l.opened(ctx)
	if err != nil {
		return Listed{}, err
	}
	return s.Head(ctx, path)
}

// Open implements Source.
func (l *Later) Open(ctx context.Context, path string, v Validator, off, n int64) (Answer, error) {
	s, err := l.opened(ctx)
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.answer(), nil
	}
	if err != nil {
		return Answer{}, err
	}
	return s.Open(ctx, path, v, off, n)
}

// Refresh implements Source.
func (l *Later) Refresh(ctx context.Context, path string) {
	if s := l.now(); s != nil {
		s.Refresh(ctx, path)
	}
}

// Name implements Source.
func (l *Later) Name() string { return l.name }

// Close implements Source.
func (l *Later) Close() error {
	if s := l.now(); s != nil {
		return s.Close()
	}
	return nil
}
