"""Settings, tables, files, processes and errors, shared by all packages. Imports no other package of components."""
