"""Stage `compare`: tables, plots and the page, and tables of published benchmarks. Nothing here can change a score."""
