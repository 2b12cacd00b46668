"""The `raftlog` command line: one module a command, loaded only when that command runs."""
