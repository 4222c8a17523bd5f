"""Questions of a task, their answers through an engine and the store, and the table of answers."""
