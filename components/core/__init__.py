"""What every stage stands on: settings, tables, files, processes, errors. Imports no other package of components."""
