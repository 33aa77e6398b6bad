package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/tune/probe"
)

// Outcome is the result of comparing an object with its service.
type Outcome string

// The outcomes. Only Same means that the bytes here are the service's.
const (
	Same      Outcome = "same"
	Differs   Outcome = "differs"
	Changed   Outcome = "changed"     // the service has another version by now, or none
	NoSum     Outcome = "no checksum" // no checksum that could be compared
	NotWhole  Outcome = "not whole"   // not all of it is in the cache
	NotAsked  Outcome = "not asked"   // the service is not known
	NoAnswer  Outcome = "no answer"
	maxAsking         = 16 // objects at a time
)

// Compared is the result for one object.
type Compared struct {
	URL     string  `json:"url"`
	Outcome Outcome `json:"remote"`
	Detail  string  `json:"detail,omitempty"`
	Dropped bool    `json:"dropped"`
}

// comparison is one run of CompareRemote.
type comparison struct {
	d       *diskcache.Directory
	options probe.Options
	repair  bool
	ui      *terminal.UI

	mu       sync.Mutex
	services map[string]*service // by folder
	counts   map[Outcome]int
	left     int // differing objects that stay in the cache
}

// service is an open folder, or the reason why it can't be opened.
type service struct {
	once sync.Once
	open *probe.Service
	err  error
}

// CompareRemote compares the objects that are complete in a cache with the checksums that their
// services report. With repair, differing objects are dropped, so that they are fetched again when
// read. It returns an error if differing objects stay, or if a service did not answer.
func CompareRemote(ctx context.Context, d *diskcache.Directory, repair bool, o probe.Options, u *terminal.UI) (err error) {
	var entries []diskcache.Entry
	if err := d.List(ctx, func(e diskcache.Entry) error {
		if e.Damaged == "" { // Verify reports those
			entries = append(entries, e)
		}
		return nil
	}); err != nil {
		return err
	}
	if o.Credentials, err = probe.NewCredentials(); err != nil {
		return err
	}
	defer o.Credentials.Close() // deferred, so after the services
	c := &comparison{d: d, options: o, repair: repair, ui: u, services: map[string]*service{}, counts: map[Outcome]int{}}
	defer func() { err = errors.Join(err, c.close()) }()
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(maxAsking)
	for _, e := range entries {
		group.Go(func() error {
			found, err := c.compare(asking, e)
			if err != nil {
				return err
			}
			return c.tell(found)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.sum()
}

func (c *comparison) close() (err error) {
	for _, s := range c.services {
		if s.open != nil {
			err = errors.Join(err, s.open.Close())
		}
	}
	return err
}

// at returns the open folder of an object and the object's name in it. Each folder is opened once.
func (c *comparison) at(ctx context.Context, url string) (*probe.Service, string, error) {
	folder, name := path.Split(url)
	c.mu.Lock()
	s := c.services[folder]
	if s == nil {
		s = &service{}
		c.services[folder] = s
	}
	c.mu.Unlock()
	s.once.Do(func() {
		if s.open, s.err = probe.OpenFolder(ctx, folder, c.options); s.err == nil && strings.TrimSuffix(s.open.Name(), "/")+"/" != folder {
			// Credentials are sent where the user says, not where a file of the cache does.
			s.err = fmt.Errorf("it belongs to another service than %s: name that service with --endpoint", s.open.Name())
			s.err = errors.Join(s.err, s.open.Close())
			s.open = nil
		}
	})
	return s.open, name, s.err
}

func (c *comparison) compare(ctx context.Context, e diskcache.Entry) (Compared, error) {
	found := Compared{URL: e.URL}
	end := func(o Outcome, detail string, args ...any) (Compared, error) {
		found.Outcome, found.Detail = o, fmt.Sprintf(detail, args...)
		return found, ctx.Err()
	}
	switch {
	case !e.Exact():
		return end(NotAsked, "its name is too long to be stored in full")
	case e.Decoded:
		return end(NotAsked, "it is a decoded object, for which the service has no checksum")
	case strings.Contains(e.Validator, " variant "):
		return end(NotAsked, "it was requested with a query, such as a signature, which is not stored")
	case strings.HasPrefix(e.URL, "file://"):
		return end(NotAsked, "it comes from a file system, which provides no checksums")
	case !e.Whole():
		return end(NotWhole, "")
	}
	s, name, err := c.at(ctx, e.URL)
	if err != nil {
		return end(NotAsked, "%v", err)
	}
	now, sums, err := s.Sums(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return end(Changed, "the service no longer has it")
	case err != nil:
		return end(NoAnswer, "%v", err)
	case now.SizeBytes != e.SizeBytes || string(now.Validator) != e.Validator:
		return end(Changed, "the service now has another version of it")
	case len(sums.Sums) == 0:
		return end(NoSum, "%s", sums.Why)
	}
	wrong, err := sums.Differs(func(w io.Writer) error { return c.d.Copy(ctx, e.Name, w) })
	switch {
	case errors.Is(err, diskcache.ErrNotWhole): // it was dropped in the meantime
		return end(NotWhole, "")
	case err != nil:
		return found, fmt.Errorf("%s: %w", printable.Line(e.URL), err)
	case wrong == nil:
		return end(Same, "")
	}
	if c.repair {
		if err := c.d.Drop(e.Name); err != nil {
			return found, fmt.Errorf("%s: drop it: %w", printable.Line(e.URL), err)
		}
		found.Dropped = true
	}
	return end(Differs, "%s", differs(wrong))
}

func differs(wrong *remote.Sum) string {
	if wrong.Where == "ETag" {
		return "its MD5 differs from its ETag, which is the MD5 at most services"
	}
	return fmt.Sprintf("its %s differs from the one that the service reports (%s)", wrong.Algorithm, wrong.Where)
}

// tell counts an object, and prints it unless it is fine.
func (c *comparison) tell(found Compared) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[found.Outcome]++
	if found.Outcome == Differs && !found.Dropped {
		c.left++
	}
	if found.Outcome == Same || found.Outcome == NotWhole {
		return nil
	}
	if c.ui.JSON {
		return c.ui.Emit(found)
	}
	text := string(found.Outcome) + ": " + found.Detail
	if found.Dropped {
		text += "; dropped, and fetched again when read"
	}
	return c.ui.Printf("%s: %s\n", printable.Line(found.URL), printable.Line(text))
}

// sum prints the number of objects by outcome.
func (c *comparison) sum() error {
	outcomes := []Outcome{Same, Differs, Changed, NoSum, NotWhole, NotAsked, NoAnswer}
	var err error
	if c.ui.JSON {
		all := map[string]int{}
		for _, o := range outcomes {
			all[strings.ReplaceAll(string(o), " ", "_")] = c.counts[o]
		}
		err = c.ui.Emit(map[string]any{"remote": all})
	} else {
		var words []string
		for _, o := range outcomes {
			if n := c.counts[o]; n > 0 {
				words = append(words, fmt.Sprintf("%d %s", n, o))
			}
		}
		if len(words) == 0 {
			words = []string{"nothing to compare"}
		}
		err = c.ui.Printf("compared with the services: %s\n", strings.Join(words, ", "))
	}
	switch {
	case err != nil:
		return err
	case c.left > 0:
		return exit.Errorf(exit.Verify, "%s in the cache differ from the service's: lsiofs cache verify --remote --repair drops them",
			terminal.Plural(uint64(c.left), "object"))
	case c.counts[NoAnswer] > 0:
		return exit.Errorf(exit.Failure, "the service did not answer for %s: try again, or check it with lsiofs doctor URL", terminal.Plural(uint64(c.counts[NoAnswer]), "object"))
	}
	return nil
}
