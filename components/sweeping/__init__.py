"""What dead processes left behind: found, and fixed unless it is a dry run."""
