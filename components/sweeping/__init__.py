"""What dead processes left behind: found, and mended unless it is a dry run."""
