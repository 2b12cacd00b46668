"""The models by the names that the command line and docs/CHECKER.md use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.lock import Lock
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.offsets import ConsumerOffsets
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.models.sets import Set

_ALL = (Register, CasRegister, KeyValue, Log, Queue, Set, Counter, Lock, ConsumerOffsets)
MODELS: Mapping[str, Callable[[], Model[Any]]] = {model.name: model for model in _ALL}
