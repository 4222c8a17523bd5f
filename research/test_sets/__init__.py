"""Test sets of research, in the form of `components.data.test_sets.readers`."""
