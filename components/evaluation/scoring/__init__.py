"""The contract of a benchmark, scoring protocols, bootstrap intervals and features of texts and pictures."""
