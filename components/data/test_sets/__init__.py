"""Published test sets: readers of their files, for benchmarks that score and for the check that none of it trains.

Every reader raises `InputError` if a file is missing, damaged, in another layout, or not as published.
"""
