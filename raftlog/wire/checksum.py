"""CRC-32C (Castagnoli), the checksum of record batches and of our own files.

The `crc32c` package imports its command line, `argparse` and `importlib.metadata` when it is imported: 40 ms
of a start that may take 300. Only its extension module is wanted, so that is loaded alone; an ordinary import
is the way back should the package ever be laid out differently.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview
Checksum: TypeAlias = Callable[..., int]


def _load() -> Checksum:
    package = find_spec("crc32c")
    locations = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", locations) if locations is not None else None
    if spec is not None and spec.loader is not None:
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
        return cast(Checksum, extension.crc32c)
    import crc32c as whole_package

    return cast(Checksum, whole_package.crc32c)


crc32c: Checksum = _load()
"""`crc32c(data, value=0) -> int`: the checksum of any buffer, continued from `value`; unsigned, 32 bits."""
