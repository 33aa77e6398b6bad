package page

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/style"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// Render returns the page of inspect --html. It is a self-contained file: styles and pictures are
// embedded, there is no script, and its policy forbids the browser to fetch anything. writer
// escapes everything that comes from a dataset. The page's size is bounded whatever the dataset,
// because charts and lists have a maximum length. Characters that control terminals or the
// direction of text are written as escapes.
func (p *page) Render() []byte {
	var w writer
	p.putHead(&w)
	p.putHeader(&w)
	p.putShuffle(&w)
	p.putShards(&w)
	p.putRecords(&w)
	p.putReads(&w)
	p.putSettings(&w)
	p.putLeftOut(&w)
	p.putFooter(&w)
	return []byte(printable.Text(w.b.String()))
}

func (p *page) putHead(w *writer) {
	w.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{} · lsiofs inspect</title>
<style>
`, p.Name)
	w.put(markup(style.CSS)) // our own file
	w.put(`</style>
</head>
<body>
`)
}

// putHeader writes the dataset's name and its most important numbers.
func (p *page) putHeader(w *writer) {
	w.put(`
<header>
<h1>{}</h1>
<p class="soft small"><code>{}</code></p>
<ul class="tiles">
`, p.Name, p.Root)
	w.put(`<li><b>{}</b><span>records`, terminal.Count(p.Records))
	if p.Split != nil {
		w.put(` of the part {}`, p.Split.Part)
	}
	if p.Sample != nil {
		w.put(` in epoch {}, a sample of 1/{}`, fmt.Sprint(p.Sample.Epoch), fmt.Sprint(p.Sample.Of))
	}
	w.put(`</span></li>
<li><b>{}</b><span>{} of {}`, number(p.Shards), noun(p.Shards, "shard"), p.Format)
	w.when(p.Kind != "", `, {}`, p.Kind)
	switch p.CompressedShards {
	case 0:
	case p.Shards:
		w.put(`, compressed`)
	default:
		w.put(`, {} compressed`, number(p.CompressedShards))
	}
	w.put(`</span></li>
<li><b>{}</b><span>in streams, of {} on storage</span></li>
`, terminal.Bytes(p.StreamBytes), terminal.Bytes(p.RawBytes))
	w.put(`<li><b>{}</b><span>a record on average</span></li>
`, terminal.Bytes(p.RecordMean()))
	w.put(`<li><b class="{}">{}</b><span>χ²/df of the shuffle, 1 is perfect</span></li>
`, p.Grade(), mixText(p.Order().Estimate))
	if n := len(p.Damaged); n > 0 {
		w.put(`<li><b class="poor">{}</b><span>damaged {}, <a href="#left-out">below</a></span></li>`, number(n), noun(n, "shard"))
	}
	w.put(`
</ul>
</header>
`)
}

// putRecords writes the sizes of records and chunks.
func (p *page) putRecords(w *writer) {
	w.put(`
<section id="records">
<h2>Record sizes</h2>
<p>{}.`, p.RecordBytes.Text())
	if p.Games != nil {
		w.put(` {}.`, p.Games.Text())
	}
	w.put(` A chunk, the unit in which shards are permuted, has {} to {} records, {}.</p>
`, long(p.ChunkRecords.Min), long(p.ChunkRecords.Max), p.ChunkBytes.Text())
	putSizes(w, "records", p.RecordSizes)
	w.put(`
</section>
`)
}

// putSizes writes a histogram. of names what is counted.
func putSizes(w *writer, of string, rows []sizeRow) {
	w.put(`<div class="scroll"><table class="sizes">
<thead><tr><th colspan="2">size</th><th class="n">{}</th><th class="n">share</th></tr></thead>
<tbody>`, of)
	for _, r := range rows {
		w.put(`
<tr><td class="range n">{} … {}</td>`, r.From, r.To)
		w.put(`<td class="bar"><svg class="bar-line" aria-hidden="true"><rect width="{}%" height="100%" rx="1.5"/></svg></td>`, fixed(r.Percent))
		w.put(`<td class="n">{}</td><td class="n">{} %</td></tr>`, terminal.Count(r.Count), percent(r.Share))
	}
	w.put(`
</tbody></table></div>
`)
}

// putSettings writes the settings that define the order, and the command for it.
func (p *page) putSettings(w *writer) {
	w.put(`
<section id="settings">
<h2>Settings</h2>
<dl>`)
	for _, s := range p.Settings() {
		w.put(`<dt>{}</dt><dd>{}</dd>`, s[0], s[1])
	}
	w.put(`
<dt>fingerprint</dt><dd><code>{}</code></dd>`, p.Fingerprint)
	if s := p.Split; s != nil {
		w.put(`
<dt>of</dt><dd>{} records, {} in streams</dd>`, terminal.Count(s.WholeRecords), terminal.Bytes(s.WholeBytes))
	}
	w.put(`</dl>
<p class="small soft">A mount of this order:</p>
<pre><code>lsiofs mount {} MNT{}</code></pre>
</section>
`, p.Quoted(), p.Flags)
}

// putLeftOut writes what is damaged, in bounded lists.
func (p *page) putLeftOut(w *writer) {
	w.put("\n")
	n, shown := len(p.Damaged), p.Shown()
	if n > 0 {
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		w.put(`<section id="left-out">
<h2>Left out</h2>
<p>{} of {} {} damaged. The parts that could not be read are in no stream.</p>
<div class="scroll"><table>
<thead><tr><th class="n">times</th><th>reason</th></tr></thead>
<tbody>`, number(n), plural(p.Shards, "shard"), verb)
		for _, r := range p.ReasonsShown() {
			w.put(`<tr><td class="n">{}</td><td class="name">{}</td></tr>`, terminal.Count(r.Count), r.Text)
		}
		w.put(`</tbody></table></div>
<ul class="lines">`)
		for _, line := range shown {
			w.put(`<li>{}</li>`, line)
		}
		w.put(`</ul>
`)
		w.when(n > len(shown), `<p class="small soft">These are the first {}. <code>lsiofs inspect</code> lists all of them.</p>`, fmt.Sprint(len(shown)))
		w.put(`
</section>`)
	}
	w.put("\n")
}

func (p *page) putFooter(w *writer) {
	w.put(`
<footer>Made by <code>lsiofs inspect --html</code>, lsiofs {}`, p.Build.Version)
	w.when(p.Build.Commit != "unknown", `, commit <code>{}</code>`, p.Build.Commit)
	w.put(`. This file loads nothing from other places.</footer>
</body>
</html>

`)
}

// How numbers are formatted.

func long(n int64) string             { return terminal.Count(uint64(n)) }
func number(n int) string             { return terminal.Count(uint64(n)) }
func plural(n int, one string) string { return terminal.Plural(uint64(n), one) }
func percent(share float64) string    { return fixed(100 * share) }
func fixed(x float64) string          { return fmt.Sprintf("%.2f", x) }
func about(x float64) string          { return terminal.Count(uint64(math.Round(x))) }
func upper(s string) string           { return strings.ToUpper(s[:1]) + s[1:] }

// noun returns one or its plural, without the number.
func noun(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}

// markup is HTML written in this package. Go converts a constant to markup implicitly, but not a
// variable: text from a dataset is a string and can only be passed to put as a value. (A template
// would check this too, but that library calls methods by name, so the linker has to keep every
// method of the whole program: 3 MB.)
type markup string

// writer builds a page.
type writer struct{ b strings.Builder }

// put writes form, with each {} replaced by the next of values. Values are text, between tags or in
// an attribute in double quotes, and are always escaped.
func (w *writer) put(form markup, values ...string) {
	parts := strings.Split(string(form), "{}")
	if len(parts) != len(values)+1 {
		panic(fmt.Sprintf("page: %d values for %q", len(values), form)) // a mistake in this package
	}
	w.b.WriteString(parts[0])
	for i, part := range parts[1:] {
		w.b.WriteString(escape(values[i]))
		w.b.WriteString(part)
	}
}

// when calls put if holds is true.
func (w *writer) when(holds bool, form markup, values ...string) {
	if holds {
		w.put(form, values...)
	}
}

// escape makes text of any string. It also replaces plus signs and zero bytes, for old browsers
// that guess encodings and drop bytes.
func escape(s string) string {
	return strings.NewReplacer("+", "&#43;", "\x00", "\uFFFD").Replace(html.EscapeString(s))
}
