package mounting

import (
	"context"
	"log/slog"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// forwarding is a handler for a log in a file, which the user does not see while the mount starts.
// It also passes warnings to the user who started the mount.
type forwarding struct {
	slog.Handler
	warn  func(text string) // called at any time
	attrs []slog.Attr
}

// forwardWarnings returns a logger that also calls warn for each warning and error.
func forwardWarnings(log *slog.Logger, warn func(text string)) *slog.Logger {
	return slog.New(&forwarding{Handler: log.Handler(), warn: warn})
}

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

func (h *forwarding) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &forwarding{h.Handler.WithAttrs(attrs), h.warn, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler. It drops the group's name from warnings, since it does not
// help the user.
func (h *forwarding) WithGroup(name string) slog.Handler {
	return &forwarding{h.Handler.WithGroup(name), h.warn, h.attrs}
}
