package fs

// sourceMetrics are the metrics for the sources of a mixture, by name.
func sourceMetrics() []metric[[]sourceReport] {
	of := func(name, help string, value func(s *sourceReport) float64) metric[[]sourceReport] {
		return metric[[]sourceReport]{gaugeKind, name, help, "source", func(sources *[]sourceReport, out func(float64, string)) {
			for i := range *sources {
				out(value(&(*sources)[i]), (*sources)[i].Name)
			}
		}}
	}
	return []metric[[]sourceReport]{
		of("lsiofs_source_records", "Records of the source among the epoch's delivered records.", func(s *sourceReport) float64 { return float64(s.Records) }),
		of("lsiofs_source_share", "Share of the source in the epoch's delivered records.", func(s *sourceReport) float64 { return s.Share }),
		of("lsiofs_source_passes_an_epoch", "Passes of an epoch through the source.", func(s *sourceReport) float64 { return s.Passes }),
	}
}
