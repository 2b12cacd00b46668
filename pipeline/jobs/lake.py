"""A lake: Parquet files by topic, date and hour, and a manifest for each micro-batch that was written to it.

    lake/topic=flights/date=2013-01-31/hour=18/00000007-00001.parquet
    lake/_manifest/00000007.json        {"batch": 7, "files": [...], "offsets": {"flights": {"0": [2000, 2400]}}}
    lake/_manifest/checkpoint           which checkpoint it is filled with: micro-batches have their numbers from there
    lake/_staging/00000008/             a micro-batch under way

A file without a manifest is what a crash left. Tools that read the whole folder may see such a file until the
micro-batch has come again; those that go by the manifests never do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from raftlog.pipeline.jobs.files import Folder

MANIFESTS, STAGING = "_manifest", "_staging"
OWNER = f"{MANIFESTS}/checkpoint"
SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""Of the files; topic, date and hour are in their paths."""


@dataclass
class Written:
    """A file of the lake. `offsets`: partition to the first and the last."""

    path: str
    topic: str
    rows: int
    offsets: dict[str, tuple[int, int]]


@dataclass
class Manifest:
    """All that one micro-batch has written."""

    batch: int
    files: list[Written]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


def in_hours(batch: Any) -> Any:
    """Rows with columns date and hour, those of one hour in one task and in the order of their offsets."""
    dated = batch.selectExpr(
        "*", "date_format(timestamp, 'yyyy-MM-dd') AS date", "date_format(timestamp, 'HH') AS hour"
    )
    return dated.repartition("topic", "date", "hour").sortWithinPartitions(
        "topic", "date", "hour", "partition", "offset"
    )


class Lake:
    """In a folder, or wherever PyArrow has a file system for."""

    schema = SCHEMA

    def __init__(self, where: str) -> None:
        self._folder = Folder(where)
        self._is_first = True

    def belongs_to(self, checkpoint: str) -> bool:
        """Whether it is filled with the checkpoint of this name; from now on it is, if it was with none before."""
        owner = self._folder.read(OWNER)
        if owner is None:
            self._folder.write(OWNER, checkpoint)
        return owner in (None, checkpoint)

    # --- one micro-batch

    def stage(self, batch: int) -> str:
        """Where Spark writes the files of a micro-batch."""
        return self._folder.spelt(f"{STAGING}/{batch:08d}")

    def publish(self, batch: int) -> Manifest:
        """Move the files of a micro-batch to their places and tell them in its manifest."""
        if self._is_first:  # only the first one of a run can have been begun by an earlier run
            self._take_away(batch)
            self._is_first = False
        staging = f"{STAGING}/{batch:08d}"
        written = []
        for at, path in enumerate(self._folder.names(staging, ".parquet")):
            folder = path[len(staging) + 1 :].rpartition("/")[0]
            name = f"{folder}/{batch:08d}-{at:05d}.parquet"
            self._folder.move(path, name)
            written.append(self._describe(name))
        manifest = Manifest(batch, written)
        self._folder.write(_manifest(batch), json.dumps(asdict(manifest), separators=(",", ":")))
        self._folder.files.delete_dir(self._folder.path(staging))
        return manifest

    def _take_away(self, batch: int) -> None:
        for name in self._folder.names("", ".parquet"):
            if name.rpartition("/")[2].startswith(f"{batch:08d}-") and not name.startswith(STAGING):
                self._folder.files.delete_file(self._folder.path(name))

    def _describe(self, name: str) -> Written:
        with self._folder.files.open_input_file(self._folder.path(name)) as opened:
            rows = pq.read_table(opened, columns=["partition", "offset"])
        found = rows.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        offsets = {str(each["partition"]): (each["offset_min"], each["offset_max"]) for each in found}
        return Written(name, _part(name, "topic"), rows.num_rows, offsets)

    # --- all of it

    def manifest(self, batch: int) -> Manifest | None:
        """What a micro-batch has written; None before it is all there."""
        text = self._folder.read(_manifest(batch))
        return None if text is None else _parse(text)

    def manifests(self) -> list[Manifest]:
        """In the order of their micro-batches."""
        texts = map(self._folder.read, self._folder.names(MANIFESTS, ".json"))
        return [_parse(text) for text in texts if text is not None]

    def offsets(self) -> dict[str, dict[str, int]]:
        """The offset behind the last one that is in the lake, by topic and partition."""
        ends: dict[str, dict[str, int]] = {}
        for manifest in self.manifests():
            for each in manifest.files:
                known = ends.setdefault(each.topic, {})
                for partition, (_, last) in each.offsets.items():
                    known[partition] = max(known.get(partition, 0), last + 1)
        return ends

    def files(self, topic: str, since: str | None = None, until: str | None = None) -> list[Written]:
        """The files of a topic, of hours from `since` to before `until` (2013-01-31 or 2013-01-31T18)."""
        found = []
        for manifest in self.manifests():
            for each in manifest.files:
                hour = f"{_part(each.path, 'date')}T{_part(each.path, 'hour')}"
                if each.topic == topic and (since or "") <= hour and (until is None or hour < until):
                    found.append(each)
        return sorted(found, key=lambda each: each.path)

    def paths(self, files: Iterable[Written]) -> list[str]:
        """Where Spark finds them."""
        return [self._folder.spelt(each.path) for each in files]

    def replay_id(self, target: str, files: Sequence[Written]) -> str:
        """The same for the same files into the same topic, so that a replay that is begun again goes on."""
        told = [self._folder.read(OWNER), target, *map(asdict, files)]
        digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
        return f"replay-{files[0].topic}-{target}"[:100] + f"-{digest}"


def _manifest(batch: int) -> str:
    return f"{MANIFESTS}/{batch:08d}.json"


def _parse(text: str) -> Manifest:
    content = json.loads(text)
    return Manifest(content["batch"], [Written(**each) for each in content["files"]])


def _part(path: str, name: str) -> str:
    """From topic=flights/date=… the value of one of these."""
    found = next(each for each in path.split("/") if each.startswith(f"{name}="))
    return unquote(found[len(name) + 1 :])
