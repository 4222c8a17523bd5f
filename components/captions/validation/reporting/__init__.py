"""Reports of validated tables: summary, samples, histograms, Data Docs."""
