"""Tasks: a line each; the command line, docs and plans read `TASKS`."""
