"""Image-caption pairs: where they come from and how they are stored."""
