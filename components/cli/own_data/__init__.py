"""A folder of captioned images: its source, size and problems, and the profile that `cliptune init` writes for it."""
