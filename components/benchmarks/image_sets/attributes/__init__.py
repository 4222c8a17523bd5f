"""Readers of data sets in the formats that their authors publish, shared by benchmarks."""
