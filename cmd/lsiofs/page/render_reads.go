package page

import (
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// putReads writes what a mount would read, or why it would be refused.
func (p *page) putReads(w *writer) {
	w.put(`
<section id="reads">
<h2>What a mount would read</h2>
`)
	if p.Reads != nil {
		p.putPlans(w, p.Reads)
	} else {
		w.put(`<p>A mount would be refused: {}</p>`, p.NoReads)
	}
	w.put(`
</section>
`)
}

func (p *page) putPlans(w *writer, r *readplan.Report) {
	w.put(`<p>Of the first {} records ({}) that worker 0 of {} gets in epoch {}, with nothing in memory and no other readers.</p>
`, terminal.Count(r.Records), terminal.Bytes(r.RecordBytes), fmt.Sprint(r.Workers), fmt.Sprint(r.Epoch))
	for _, s := range r.Storages {
		w.put(`
<p class="small soft">Storage {}: {}.</p>
`, s.Kind, fmt.Sprint(s.Likes))
		putStrategies(w, s.Plans)
		w.put(`<dl>`)
		w.when(s.Reason != "", `<dt>in use</dt><dd>{}</dd>`, s.Reason)
		for _, plan := range s.Plans {
			w.put(`<dt>{}</dt><dd>{}</dd>`, plan.Strategy, strings.Join(plan.Notes, "; "))
		}
		w.put(`</dl>
`)
	}
	w.put("\n")
	if r.Crops != nil {
		w.put(`<pre>{}</pre>`, r.Crops.Text())
	}
	if len(p.ReadSizes) > 0 {
		w.put(`<h3>Reads, by size</h3>
`)
		putSizes(w, "reads", p.ReadSizes)
	}
	w.put("\n")
	if r.Service != nil {
		putService(w, r.Service)
	}
	w.put("\n")
}

// putStrategies writes the cost of each way to read.
func putStrategies(w *writer, plans []readplan.StrategyPlan) {
	w.put(`<div class="scroll"><table>
<thead><tr><th>strategy</th><th class="n">reads</th><th class="n">bytes</th><th class="n">bytes read<br>per byte</th><th class="n wide">bytes per read</th></tr></thead>
<tbody>`)
	for _, p := range plans {
		roughly := ""
		if p.Estimated {
			roughly = "≈ "
		}
		w.put("\n")
		putRow(w, p.InUse)
		putInUse(w, p.Strategy, p.InUse)
		w.put(`<td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td class="n wide">{}</td></tr>`,
			roughly+terminal.Count(p.Reads), roughly+terminal.Bytes(p.ReadBytes), fixed(p.Amplification),
			terminal.Bytes(p.ReadBytes/max(int64(p.Reads), 1)))
	}
	w.put(`
</tbody></table></div>
`)
}

// putInUse writes the first cell of a row, with a mark if it is in use.
func putInUse(w *writer, name string, inUse bool) {
	w.put(`<td class="name">{}`, name)
	w.when(inUse, ` <span class="good">← in use</span>`)
	w.put(`</td>`)
}

// putService writes the cost of an epoch if reads are requests to a service.
func putService(w *writer, s *readplan.Service) {
	w.put(`<h3>An epoch, as requests</h3>
<p>An epoch of {} takes {} requests`, s.Name, terminal.Count(s.Requests))
	w.when(s.Dollars != 0, ` (about {} at S3's list price)`, dollars(s.Dollars))
	w.put(` and {}. Records that are kept until they are due take up to {} of memory, or {} of a disk cache.</p>
<div class="scroll"><table>
<thead><tr><th><code>--chunk-bytes</code></th><th class="n">requests</th>`,
		terminal.Bytes(s.Bytes), terminal.Bytes(s.NeedsMemory), terminal.Bytes(s.NeedsDisk))
	priced := s.GetDollars != 0
	w.when(priced, `<th class="n">price</th>`)
	w.put(`<th class="n">χ²/df</th><th class="n wide">memory</th><th class="n wide">disk cache</th></tr></thead>
<tbody>`)
	for _, c := range s.Chunks {
		mixing := "-"
		if c.Mixing != 0 {
			mixing = fixed(c.Mixing)
		}
		w.put("\n")
		putRow(w, c.InUse)
		putInUse(w, terminal.Size(c.ChunkBytes), c.InUse)
		w.put(`<td class="n">{}</td>`, terminal.Count(c.Requests))
		w.when(priced, `<td class="n">{}</td>`, dollars(c.Dollars))
		w.put(`<td class="n">{}</td><td class="n wide">{}</td><td class="n wide">{}</td></tr>`,
			mixing, terminal.Bytes(c.NeedsMemory), terminal.Bytes(c.NeedsDisk))
	}
	w.put(`
</tbody></table></div>`)
	for _, note := range s.Notes {
		w.put(`
<p class="small soft">{}.</p>`, note)
	}
}

func dollars(x float64) string { return fmt.Sprintf("$%.4f", x) }
