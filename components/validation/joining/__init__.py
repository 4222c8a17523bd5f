"""The answers of a table's tasks as rows, joined out of core."""
