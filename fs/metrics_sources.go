package fs

import "github.com/prometheus/client_golang/prometheus"

// sourceMetrics are those of the sources of a mixture, by name.
type sourceMetrics struct{ records, share, passes *prometheus.Desc }

func newSourceMetrics() sourceMetrics {
	of := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"source"}, nil)
	}
	return sourceMetrics{
		records: of("lsiofs_source_records", "Records of the source among those of the epoch that have gone out."),
		share:   of("lsiofs_source_share", "Part of the epoch's records that have gone out which are of the source."),
		passes:  of("lsiofs_source_passes_an_epoch", "How often an epoch goes through the source."),
	}
}

func (m *sourceMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.records, m.share, m.passes} {
		out <- d
	}
}

func (m *sourceMetrics) collect(out chan<- prometheus.Metric, sources []sourceReport) {
	for i := range sources {
		s := &sources[i]
		out <- prometheus.MustNewConstMetric(m.records, prometheus.GaugeValue, float64(s.Records), s.Name)
		out <- prometheus.MustNewConstMetric(m.share, prometheus.GaugeValue, s.Share, s.Name)
		out <- prometheus.MustNewConstMetric(m.passes, prometheus.GaugeValue, s.Passes, s.Name)
	}
}
