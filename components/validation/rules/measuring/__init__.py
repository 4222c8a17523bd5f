"""What is measured of every answer."""
