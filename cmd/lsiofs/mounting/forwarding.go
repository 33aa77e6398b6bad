package mounting

import (
	"context"
	"log/slog"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// forwarding is a handler of a log that is a file, which nobody reads while a mount comes up: warnings
// go to the person who has started the mount as well.
type forwarding struct {
	slog.Handler
	warn  func(text string) // it may be called at any time
	attrs []slog.Attr
}

// forwardWarnings returns a logger that also calls warn for each warning and error.
func forwardWarnings(log *slog.Logger, warn func(text string)) *slog.Logger {
	return slog.New(&forwarding{Handler: log.Handler(), warn: warn})
}

// Handle implements slog.Handler.
func (h *forwarding) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		var b strings.Builder
		b.WriteString(r.Message)
		between := " ("
		add := func(a slog.Attr) bool {
			b.WriteString(between + a.Key + "=" + terminal.Quote(a.Value.String()))
			between = ", "
			return true
		}
		for _, a := range h.attrs {
			add(a)
		}
		r.Attrs(add)
		if between == ", " {
			b.WriteByte(')')
		}
		h.warn(b.String())
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *forwarding) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &forwarding{h.Handler.WithAttrs(attrs), h.warn, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. The names of groups are of no use to a person.
func (h *forwarding) WithGroup(name string) slog.Handler {
	return &forwarding{h.Handler.WithGroup(name), h.warn, h.attrs}
}
