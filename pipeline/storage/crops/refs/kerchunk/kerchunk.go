// Package kerchunk reads reference files written by kerchunk and VirtualiZarr: JSON that maps each
// object of a Zarr hierarchy to a range of a file.
//
//	{"version": 1,
//	 "templates": {"u": "data/2018.nc"},
//	 "refs": {
//	   ".zgroup": "{\"zarr_format\": 2}",             the object's text
//	   "t2m/.zarray": {"zarr_format": 2, …},          the same, as JSON
//	   "t2m/0.0": ["{{u}}", 41240, 8123],             a range of a file
//	   "t2m/0.1": ["data/b.bin"],                     all of a file
//	   "t2m/1.0": "base64:AAAA"}}                     bytes
//
// Version 0 has only the members of refs. A template is plain text; expressions, and members of
// gen, which generate references with a template language, are refused. Names of files are returned
// as written: resolving them is up to the caller.
//
// It does no I/O except through its reader, reads from front to back, and bounds its memory: a text
// has at most 16 MiB (zarr.MaxDocumentBytes), and at most a quarter of the bound of all, which
// package table enforces. The format is
// https://github.com/fsspec/kerchunk/blob/2c5091c/docs/source/spec.rst.
package kerchunk

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
	"github.com/lsiofs/lsiofs/pipeline/strictjson"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

const (
	// MaxBytes bounds a reference file. 10 million references take 1 GB.
	MaxBytes = 1 << 30
	// maxTextBytes bounds an encoded text: base64 and escapes make it longer.
	maxTextBytes = 2 * zarr.MaxDocumentBytes
	// maxNameBytes bounds the name of a file.
	maxNameBytes = 4 << 10
	maxTemplates = 1 << 12
	// maxMemberBytes bounds the encoded name of a member: names of all levels are held at the same
	// time.
	maxMemberBytes = 32 << 10
)

// parser reads one file.
type parser struct {
	*strictjson.Scanner
	b         *table.Builder
	mostText  int
	templates map[string]string
	flat      int // members that version 1 does not have
	version   int64
	versioned bool
	refs      bool
}

// Parse reads a reference file. Its table takes at most mostBytes.
func Parse(r io.Reader, mostBytes int64) (*table.Table, error) {
	p := &parser{Scanner: strictjson.NewReader(r, zarr.MaxDepth), b: table.NewBuilder(false, mostBytes), mostText: maxTextBytes}
	if mostBytes/4 < maxTextBytes {
		p.mostText = int(max(mostBytes/4, 0))
	}
	if err := p.object(p.member); err != nil {
		return nil, err
	}
	if err := p.End(); err != nil {
		return nil, err
	}
	switch {
	case p.refs && (!p.versioned || p.version != 1):
		return nil, errors.New(`it has "refs", and its "version" is not 1: write the references again, as version 1`)
	case p.versioned && !p.refs && p.version != 0:
		return nil, errors.New(`it has a "version" and no "refs": write the references again`)
	case p.refs && p.flat > 0:
		return nil, fmt.Errorf(`it has "refs", and %d other members that version 1 does not have`, p.flat)
	}
	if err := p.b.Rename(p.expand); err != nil {
		return nil, err
	}
	return p.b.Table()
}

// errorf returns an error at the next byte.
func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", p.Offset(), fmt.Errorf(format, args...))
}

// begins returns an error unless the next value begins with c.
func (p *parser) begins(c byte, what string) error {
	next, err := p.Peek()
	if err == nil && next != c {
		err = p.errorf("expected %s, not %q", what, p.Token())
	}
	return err
}

// object consumes an object, and calls member for each name, which it may keep; member consumes the
// value.
func (p *parser) object(member func(name []byte) error) error {
	if err := p.begins('{', "an object, {…}"); err != nil {
		return err
	}
	return p.Members('{', func(int) error {
		name, err := p.text(maxMemberBytes)
		if err == nil {
			name = bytes.Clone(name)
			_, err = p.Expect(":")
		}
		if err != nil {
			return err
		}
		return member(name)
	})
}

// encoded returns the next value as it is encoded. It is valid until the next one is read.
func (p *parser) encoded(most int) ([]byte, error) {
	b, err := p.Value(most)
	if err == nil && !utf8.Valid(b) {
		err = p.errorf("a string is not UTF-8")
	}
	return b, err
}

// text returns the next value, which must be a string. It is valid until the next one is read.
func (p *parser) text(most int) ([]byte, error) {
	c, err := p.Peek()
	if err != nil {
		return nil, err
	}
	if c != '"' {
		return nil, p.errorf("expected a string")
	}
	b, err := p.encoded(most)
	if err != nil {
		return nil, err
	}
	text, exact := strictjson.Unquote(b)
	if !exact {
		return nil, p.errorf("a string has an escape that is half a character")
	}
	return text, nil
}

// number returns the next value, which must be a whole number.
func (p *parser) number() (int64, error) {
	b, err := p.Value(100)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 {
		return 0, p.errorf("%.100q is not a number of bytes", b)
	}
	return n, nil
}

// member consumes a member of the document.
func (p *parser) member(name []byte) (err error) {
	switch string(name) {
	case "version":
		p.versioned = true
		p.version, err = p.number()
		return err
	case "refs":
		if p.refs {
			return p.errorf(`"refs" occurs twice`)
		}
		p.refs = true
		return p.object(p.reference)
	case "templates":
		if p.templates != nil {
			return p.errorf(`"templates" occurs twice`)
		}
		p.templates = map[string]string{}
		return p.object(p.template)
	case "gen":
		none := true
		err := p.begins('[', "a list")
		if err != nil {
			return err
		}
		err = p.Members('[', func(int) error {
			none = false
			return p.Skip()
		})
		if err == nil && !none {
			err = p.errorf(`it has "gen", whose references are made by a template language that is not read: write them out, as kerchunk does without it`)
		}
		return err
	}
	if string(name) == "zarr_format" {
		return p.errorf("this is a document of a Zarr array or group, not a reference file: name its directory")
	}
	p.flat++
	return p.reference(name)
}

// template consumes a template.
func (p *parser) template(name []byte) error {
	text, err := p.text(maxNameBytes)
	switch {
	case err != nil:
		return err
	case bytes.Contains(text, []byte("{{")):
		return p.errorf("the template %q takes arguments, or uses another one, and is not read: write out the names of files", name)
	case len(p.templates) == maxTemplates:
		return p.errorf("there are more than %d templates", maxTemplates)
	case len(name) > maxNameBytes:
		return p.errorf("the name of a template has more than %d bytes", maxNameBytes)
	}
	p.templates[string(name)] = string(text)
	return nil
}

// reference consumes the reference of a key.
func (p *parser) reference(key []byte) error {
	c, err := p.Peek()
	if err != nil {
		return err
	}
	place, file := table.Place{Kind: table.Inline}, ""
	switch c {
	case '"':
		place.Bytes, err = p.content()
	case '{':
		place.Bytes, err = p.encoded(min(zarr.MaxDocumentBytes, p.mostText))
		err = p.larger(err)
	case '[':
		place, file, err = p.place()
	default:
		err = p.errorf("a key stands for a text, an object or a list")
	}
	if err == nil {
		err = p.b.Add(key, place, file)
	}
	if err != nil {
		return fmt.Errorf("key %.200q: %w", key, err)
	}
	return nil
}

// larger returns an error, with advice if memory is the reason.
func (p *parser) larger(err error) error {
	if long, ok := errors.AsType[*strictjson.SizeError](err); ok && long.MaxBytes < zarr.MaxDocumentBytes {
		return fmt.Errorf("%w, which is an eighth of --memory: raise that", err)
	}
	return err
}

// content consumes the content of an object.
func (p *parser) content() ([]byte, error) {
	text, err := p.text(p.mostText)
	if err != nil {
		return nil, p.larger(err)
	}
	coded, ok := bytes.CutPrefix(text, []byte("base64:"))
	if !ok {
		return text, nil
	}
	b, err := base64.StdEncoding.AppendDecode(nil, coded)
	if err != nil {
		return nil, p.errorf("the text after base64: is not base64: %v", err)
	}
	return b, nil
}

// place consumes the list that holds an object's place.
func (p *parser) place() (place table.Place, file string, err error) {
	items := 0
	place.Kind = table.Whole
	err = p.Members('[', func(i int) (err error) {
		switch items = i + 1; items {
		case 1:
			var b []byte
			b, err = p.text(maxNameBytes)
			file = string(b)
		case 2:
			place.Offset, err = p.number()
		case 3:
			place.Size, err = p.number()
			place.Kind = table.Range
		default:
			err = p.errorf("a list of more than 3 items is not a place")
		}
		return err
	})
	if err == nil && items != 1 && items != 3 {
		err = p.errorf("a list of %d items is not a place: that is a file, or a file, an offset and a size", items)
	}
	return place, file, err
}

// expand replaces the templates in a name.
func (p *parser) expand(name string) (string, error) {
	var text strings.Builder
	for rest := name; ; {
		before, after, found := strings.Cut(rest, "{{")
		text.WriteString(before)
		if text.Len() > maxNameBytes {
			return "", fmt.Errorf("the name %.200q has more than %d bytes with its templates", name, maxNameBytes)
		}
		if !found {
			return text.String(), nil
		}
		what, after, found := strings.Cut(after, "}}")
		value, known := p.templates[strings.TrimSpace(what)]
		if !found || !known {
			return "", fmt.Errorf("the name %.200q has an expression, %.200q, that is not the name of a template: write it out", name, what)
		}
		text.WriteString(value)
		rest = after
	}
}
