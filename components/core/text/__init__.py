"""Words that several stages know."""
