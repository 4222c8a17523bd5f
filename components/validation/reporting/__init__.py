"""What became of a table's rows: summary, samples, plots, Data Docs."""
