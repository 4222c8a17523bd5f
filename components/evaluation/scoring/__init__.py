"""The contract of a benchmark, scoring protocols, intervals and features of texts and pictures."""
