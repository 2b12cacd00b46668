"""What a program imports: every public name from one module, and errors that say what to do."""

from __future__ import annotations

import inspect
import re

import pytest

import raftlog.client
from raftlog.client.core import errors
from raftlog.client.core.advice import ADVICE
from raftlog.wire.errors import ErrorCode
from tests.paths import ROOT
from tests.programs import printed_by

ERRORS = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == errors.__name__
]


def test_every_error_and_every_class_that_the_document_names_is_imported_from_the_client() -> None:
    named = set(re.findall(r"(?<![.\w])[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", (ROOT / "docs/CLIENT.md").read_text()))
    wanted = {each.__name__ for each in ERRORS} | named - {"NumPy", "TypeError", "ValueError"}
    assert wanted <= set(raftlog.client.__all__), wanted - set(raftlog.client.__all__)


def test_each_name_is_there() -> None:
    for name in raftlog.client.__all__:
        assert getattr(raftlog.client, name).__name__ == name and name in dir(raftlog.client)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Cleint'"):
        raftlog.client.Cleint  # noqa: B018


def test_a_program_that_wants_the_errors_pays_for_nothing_else() -> None:
    script = (
        "import sys; from raftlog.client import BadSetting, BadTable, KafkaError, TimedOut, TransactionFailed;"
        "print([name for name in ('asyncio', 'numpy', 'pyarrow', 'raftlog.client.producer') if name in sys.modules])"
    )
    assert printed_by(script) == "[]"


def test_every_error_code_has_an_advice() -> None:
    for code in ErrorCode:
        assert errors.Rejected(code, "topic 'orders'").advice == ADVICE[code] != ""


def test_every_error_without_a_code_has_an_advice() -> None:
    for kind in ERRORS:
        assert not issubclass(kind, errors.KafkaError) or kind.__new__(kind).advice


def test_what_a_producer_is_told_fits_what_it_can_do() -> None:
    stale = errors.Rejected(ErrorCode.INVALID_PRODUCER_EPOCH, "orders[0]")
    assert "send it again" in stale.advice and not stale.fatal
    assert "abort" in errors.TransactionFailed(stale).advice
    fenced = errors.ProducerFenced(ErrorCode.INVALID_PRODUCER_EPOCH, "transactional id 'x'")
    assert "close this one" in fenced.advice


def test_a_doubt_is_told_once() -> None:
    fenced = errors.ProducerFenced(ErrorCode.PRODUCER_FENCED, "transactional id 'x'")
    fenced.in_doubt = True
    assert "may have succeeded" in str(fenced) and "may have succeeded" not in fenced.advice
    assert "look what was done" in fenced.advice and "look what was done" not in str(fenced)
