"""The comparison as one self-contained HTML page."""
