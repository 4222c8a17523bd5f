"""What `cliptune doctor` looks at: one file of `checks/` for each part of the installation."""
