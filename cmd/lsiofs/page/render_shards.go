package page

import (
	"fmt"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
)

// mixText formats how well an order mixes, if it was measured.
func mixText(e quality.Estimate) string {
	if e.Batches == 0 {
		return "–"
	}
	return fixed(e.Value)
}

// putShuffle writes the pictures of the order and of others, and how well they mix.
func (p *page) putShuffle(w *writer) {
	w.put(`
<section id="shuffle">
<h2>The shuffle: <span class="{}">{}</span></h2>
<p>Each picture is an epoch, from its first record on the left to its last on the right; from top to bottom lie the shards. Where the colour is strong, many of the records come from those shards; where there is none, no record does.
<b>An even tone is a good mix</b>: at any time, records come from everywhere. Lines are stretches of training that see more of these shards than of others.</p>
<div class="legend"><span>records of these shards:</span><i class="d0"></i>none<i class="d1"></i>their share<i class="d2"></i>twice<i class="d3"></i>three times, or more</div>
`, p.Grade(), p.Verdict())
	for _, s := range p.Shuffles {
		s.put(w)
	}
	w.put("\n")
	if pic := p.Shuffles[0].Picture; pic != nil {
		w.put(`<p class="small soft">`)
		w.when(pic.Columns > 1, `Each column is 1/{} of the epoch, `, fmt.Sprint(pic.Columns))
		w.put(`each row {}; a point stands for about {} records where all is even, so that chance alone makes a grain, as in the last picture.</p>`,
			pic.PerRow(), about(pic.Expected))
	}
	w.put("\n")
	p.putMixes(w)
	order, where := p.Order(), "at equal distances over the epoch"
	if order.Whole {
		where = "over the whole epoch"
	}
	w.put(`<p class="small soft">χ²/df compares the number of records of each shard in each batch of 256 with the expected number: independent sampling has 1, batches from a single shard 256.
If each record were drawn independently, {} % would follow one of the same shard. Measured: {}, in {} batches.</p>
`, percent(order.Independent), where, number(order.Batches))
	advice := p.Advice()
	w.when(advice != "", `<p>Improved by: {}.</p>`, advice)
	w.put(`
</section>
`)
}

// put writes a shuffle's picture and its note.
func (s shuffleRow) put(w *writer) {
	w.put(`
<figure class="mix">
<div class="head"><b>{}</b><span>`, upper(s.Name))
	w.when(s.Mix.Batches != 0, `χ²/df {} · `, fixed(s.Mix.Value))
	w.put(`{} % neighbours from one shard</span></div>
`, percent(s.Mix.Neighbours))
	if pic := s.Picture; pic != nil {
		w.put(`<div class="frame"><img src="{}" alt="density of {} over the epoch" style="height: {}px"></div>
<div class="axis"><span>start of the epoch</span><span>end</span></div>`, pic.URL, plural(pic.Shards, "shard"), fmt.Sprint(pic.HeightPixels))
	}
	w.put(`
<figcaption>{}.</figcaption>
</figure>
`, upper(s.Note))
}

// putMixes writes a table of how well the shuffles mix.
func (p *page) putMixes(w *writer) {
	w.put(`
<div class="scroll"><table>
<thead><tr><th>shuffle</th><th class="n">χ²/df</th><th class="n">neighbours from<br>one shard</th></tr></thead>
<tbody>
`)
	for i, s := range p.Shuffles {
		putRow(w, i == 0)
		w.put(`<td class="name">{}</td><td class="n">{}</td><td class="n">{} %</td></tr>
`, s.Name, mixText(s.Mix.Estimate), percent(s.Mix.Neighbours))
		if i == 0 && p.Workers > 1 {
			w.put(`<tr><td class="name">this order, as one of {} workers sees it</td><td class="n">{}</td><td></td></tr>
`, terminal.Count(p.Workers), mixText(p.Mixing.Worker))
		}
	}
	w.put(`</tbody></table></div>
`)
}

// putRow begins a table row, highlighted if it is in use.
func putRow(w *writer, inUse bool) {
	w.put(`<tr`)
	w.when(inUse, ` class="use"`)
	w.put(`>`)
}

// putShards writes the sizes of shards: a chart and lists.
func (p *page) putShards(w *writer) {
	c := &p.Chart
	w.put(`
<section id="shards">
<h2>Shards</h2>
<p>{} of {}; `, plural(p.Shards, "shard"), c.Bytes.Text())
	w.when(c.Records.Min != c.Records.Max, `{} to `, long(c.Records.Min))
	w.put(`{} records each.`, long(c.Records.Max))
	w.when(p.PassedOver != 0, ` {} skipped.`, plural(p.PassedOver, "file"))
	w.put(`</p>
`)
	if p.Shards > 1 {
		c.putBars(w)
	}
	w.put("\n")
	for _, l := range c.Lists {
		l.put(w, c.Compressed)
	}
	w.put(`</section>
`)
}

// putBars writes the sizes of shards in dataset order.
func (c *shardChart) putBars(w *writer) {
	w.put(`<figure class="shards">
<div class="axis"><span>{}</span></div>
<div class="frame"><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="sizes of shards in dataset order">
`, terminal.Bytes(c.Bytes.Max))
	for _, b := range c.Bars {
		x, width := fixed(b.X), fixed(b.Drawn())
		w.put(`<g><title>{}</title>`, b.Text)
		w.when(b.Most != b.Mean, `<rect class="most" x="{}" width="{}" y="{}" height="{}"/>`, x, width, fixed(b.MostY()), fixed(b.Most))
		w.put(`<rect class="mean" x="{}" width="{}" y="{}" height="{}"/></g>
`, x, width, fixed(b.MeanY()), fixed(b.Mean))
	}
	w.put(`</svg></div>
<div class="axis"><span>first shard</span><span>last, in dataset order</span></div>
<figcaption>`)
	if c.EachShards == 1 {
		w.put(`Each bar is the file size of a shard.`)
	} else {
		w.put(`<span class="legend" style="display:inline-flex;margin:0"><i class="mean"></i>mean <i class="most"></i>largest</span> file size of {} neighbouring shards a bar.`, fmt.Sprint(c.EachShards))
	}
	w.put(` Hover over a bar for details.</figcaption>
</figure>`)
}

// put writes a table of shards. If some are compressed, it includes their decoded size.
func (l shardList) put(w *writer, compressed bool) {
	w.put(`<h3>{}</h3>
<div class="scroll"><table>
<thead><tr><th class="n wide">#</th><th>shard</th><th class="n">records</th><th class="n">file</th>`, l.Title)
	w.when(compressed, `<th class="n wide">decoded</th>`)
	w.put(`</tr></thead>
<tbody>`)
	for _, s := range l.Shards {
		w.put(`
<tr><td class="n wide soft">{}</td>`, number(s.Number))
		w.put(`<td class="name">{}<svg class="bar-line" aria-hidden="true"><rect width="{}%" height="100%" rx="1.5"/></svg></td>`, s.Path, fixed(s.Percent))
		w.put(`<td class="n">{}</td><td class="n">{}</td>`, terminal.Count(s.Records), terminal.Bytes(s.Bytes))
		w.when(compressed, `<td class="n wide">{}</td>`, terminal.Bytes(s.DecodedBytes))
		w.put(`</tr>`)
	}
	w.put(`
</tbody></table></div>
`)
}
