package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// refuseKinds refuses shards whose records are of another kind than those of the first shard with
// records, if the format requires one kind (format.Uniform). Shards of an earlier index are
// compared like new ones.
func (o *opening) refuseKinds(sealed []index.Shard) error {
	u, ok := o.found.Unpacker.(format.Uniform)
	if !ok {
		return nil
	}
	first, kind := -1, ""
	for i := range sealed {
		b := sealed[i].Blob
		switch this := b.Kind(); {
		case b.Header().Records == 0 || string(this) == kind:
		case first < 0:
			if first, kind = i, string(this); !u.SameKind(kind, kind) {
				return fmt.Errorf("%s holds shards of several kinds, and a dataset of format %s needs one: %s has %s: %s",
					&o.target, o.found.Format.Name, sealed[i].Object.Path, kindText(kind, 0), o.oneKind())
			}
		case !u.SameKind(kind, string(this)):
			if told := kindsDiffer(u, string(this), kind); told != "" {
				return fmt.Errorf("%s holds shards of two kinds, and a dataset of format %s needs one: %s differs from %s, which comes before it: %s: %s",
					&o.target, o.found.Format.Name, sealed[i].Object.Path, sealed[first].Object.Path, told, o.oneKind())
			}
			from := differAt(kind, string(this))
			return fmt.Errorf("%s holds shards of two kinds, and a dataset of format %s needs one: %s has %s, %s has %s: %s",
				&o.target, o.found.Format.Name, sealed[first].Object.Path, kindText(kind, from), sealed[i].Object.Path, kindText(string(this), from), o.oneKind())
		}
	}
	return nil
}

// oneKind returns the advice for a dataset with shards of several kinds.
func (o *opening) oneKind() string {
	const pattern = "name files of one kind with a pattern"
	if o.found.Format.Name == "lc0" {
		return pattern + ", or use --as tensors, which reads games of several versions"
	}
	return pattern
}

// kindsDiffer returns the format's description of how two kinds differ, "" if it has none.
func kindsDiffer(f format.Format, is, was string) string {
	if d, ok := f.(format.Differ); ok {
		return d.Differences(is, was)
	}
	return ""
}

// kindText returns a kind for a message, from byte from on: the kinds of arrays with many fields
// are long.
func kindText(kind string, from int) string {
	const most = 400
	text := kind[from:]
	if len(text) > most {
		text = text[:most] + "…"
	}
	if from > 0 {
		text = "…" + text
	}
	return strings.ToValidUTF8(text, "")
}

// differAt returns an offset a little before the first difference of two kinds, or 0 if that is
// close enough to the beginning to be shown.
func differAt(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n < 200 {
		return 0
	}
	return n - 100
}

// setKind sets the kind from the index: that of the first shard with records, or those of all
// shards if kinds may be mixed.
func (c *Catalog) setKind() error {
	u, ok := c.unpacker.(format.Uniform)
	if !ok {
		return nil
	}
	mixer, mixes := u.(format.Mixer)
	first, kinds := uint64(0), []string(nil)
	for i := range c.image.Shards() {
		b := c.image.Blob(i)
		if b.Header().Records == 0 || slices.Contains(kinds, string(b.Kind())) {
			continue
		}
		if kinds = append(kinds, string(b.Kind())); len(kinds) == 1 {
			first = i
		}
		if !mixes {
			break
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	if c.kind = kinds[0]; mixes {
		c.kind = mixer.MixedKind(kinds)
	}
	f, err := u.OfKind(c.kind)
	if err != nil {
		return fmt.Errorf("%s: the stored index has %s: %w: lsiofs index --rebuild makes the index again", c.image.Object(first).Path, kindText(c.kind, 0), err)
	}
	c.unpacker = f
	return nil
}
