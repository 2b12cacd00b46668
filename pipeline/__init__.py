"""The data pipeline on Spark: `from raftlog.pipeline import RaftlogDataSource`, see docs/PIPELINE.md.

Names are imported when they are first used: the pure parts need no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.pipeline.data_source import RaftlogDataSource
    from raftlog.pipeline.shipping import ship

__all__ = ["RaftlogDataSource", "ship"]

_HOMES = {"RaftlogDataSource": "data_source", "ship": "shipping"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from raftlog.client.core.errors import MissingExtra

    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ImportError as error:
        raise MissingExtra(name, "spark") from error
