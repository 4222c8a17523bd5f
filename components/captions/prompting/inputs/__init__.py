"""Readers of the tables that prompt tasks ask about."""
