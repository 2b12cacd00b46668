"""The name that older installations know the pytest plugin by: it is `raftlog.testing.pytest_plugin`."""

from raftlog.testing.pytest_plugin import *  # noqa: F403
