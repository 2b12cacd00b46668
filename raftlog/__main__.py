"""`python -m raftlog`, which is the same as the `raftlog` command."""


def main() -> int:
    """Run the command line of this process; 130 when Ctrl-C ends it, also while Python still imports what it needs."""
    try:
        from raftlog.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # cli.main.EXIT_INTERRUPTED, which may not be there yet


if __name__ == "__main__":
    raise SystemExit(main())
