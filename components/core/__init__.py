"""What all packages share: settings, tables, files, processes, errors. Imports no other package of components."""
