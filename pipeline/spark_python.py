"""`raftlog-spark-python`: the Python for Spark's workers that need not compile PySpark each time it starts.

Spark puts `pyspark.zip` first on the path of every Python that it starts, and of what is imported from an archive
Python keeps no bytecode: half a second for every streaming query. The same modules lie unpacked beside it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence

NAME = "raftlog-spark-python"


def command() -> str:
    """What PYSPARK_PYTHON is to be on this machine: this Python itself where it has no scripts."""
    script = os.path.join(sysconfig.get_path("scripts"), NAME)
    return script if os.access(script, os.X_OK) else sys.executable


def unpacked(entries: Sequence[str], own: Sequence[str]) -> list[str]:
    """Entries of PYTHONPATH, with folders in place of Spark's archives. `own`: where this Python looks after them."""
    return [each for each in (_unpacked(entry, own) for entry in entries) if each is not None]


def _unpacked(entry: str, own: Sequence[str]) -> str | None:
    """None where what an archive holds is installed: a Spark that came with pip is a package itself."""
    home, lib, archive = entry.rpartition("/python/lib/")
    if not lib or not archive.startswith(("pyspark.zip", "py4j-")):
        return entry
    if os.path.exists(f"{home}/__init__.py"):
        return None if os.path.realpath(os.path.dirname(home)) in map(os.path.realpath, own) else entry
    has_modules = archive == "pyspark.zip" and os.path.exists(f"{home}/python/pyspark/__init__.py")
    return f"{home}/python" if has_modules else entry


def main() -> None:
    """Become this Python, with the arguments given and a PYTHONPATH of folders."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [folder for folder in sys.path if folder not in given]
    os.environ["PYTHONPATH"] = os.pathsep.join(unpacked(given, own))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
