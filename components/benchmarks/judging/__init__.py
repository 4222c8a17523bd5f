"""Benchmarks that ask a judge: the judge, and the pictures that a diffusion model draws for it."""
