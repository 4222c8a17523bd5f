"""The rules of each table: checks, measurements and facts of synthetic scenes."""
