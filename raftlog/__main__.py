"""`python -m raftlog` is the same as the `raftlog` command."""

from raftlog.cli.main import main

raise SystemExit(main())
