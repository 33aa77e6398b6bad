package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// pagesAtOnce is how many pages of a listing are requested at a time. At web servers, where a page
// is one file, 147 shards take 0.1 s at 25 ms each.
const pagesAtOnce = 32

// Walk visits all objects of a source, page by page, until the first error. visit is
// not called concurrently, nor after an error.
func Walk(ctx context.Context, source Source, visit func(Listed) error) error {
	var mu sync.Mutex
	var failed error
	one := func(l Listed) error {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			failed = visit(l)
		}
		return failed
	}
	return walk(ctx, func(ctx context.Context, page string) ([]string, error) { return source.List(ctx, page, one) })
}

// walk calls list for the first page, and for all pages that others return in next. At the first
// error it cancels the others, and waits for them.
func walk(ctx context.Context, list func(ctx context.Context, page string) (next []string, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type came struct {
		page string
		next []string
		err  error
	}
	pages, running, all := []string{""}, 0, make(chan came)
	var failed error
	for len(pages) > 0 || running > 0 {
		for ; len(pages) > 0 && running < pagesAtOnce; running++ {
			page := pages[0]
			pages = pages[1:]
			go func() {
				next, err := list(ctx, page)
				all <- came{page, next, err}
			}()
		}
		c := <-all
		running--
		if c.err == nil && slices.Contains(c.next, c.page) {
			c.err = fmt.Errorf("a page names itself as the next")
		}
		if c.err != nil && failed == nil {
			failed = c.err
			cancel()
		}
		if pages = append(pages, c.next...); failed != nil {
			pages = nil
		}
	}
	return failed
}
