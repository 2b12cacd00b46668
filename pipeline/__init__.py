"""The data pipeline on Spark: `from raftlog.pipeline import RaftlogDataSource`, see docs/PIPELINE.md.

Names are imported when they are first used: the pure parts need no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.pipeline.data_source import RaftlogDataSource

__all__ = ["RaftlogDataSource"]


def __getattr__(name: str) -> Any:
    if name != "RaftlogDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from raftlog.client.core.errors import MissingExtra

    try:
        from raftlog.pipeline.data_source import RaftlogDataSource
    except ImportError as error:
        raise MissingExtra("RaftlogDataSource", "spark") from error
    return RaftlogDataSource
