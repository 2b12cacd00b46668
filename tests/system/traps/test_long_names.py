"""The longest text that the protocol can carry, in every place that takes text: a reply comes, however it is quoted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.broker.api.handlers import served_apis
from raftlog.wire.apis import Api
from raftlog.wire.schema import Kind, Struct
from tests.conftest import Broker
from tests.system.traps.raw import RawConnection
from tests.system.traps.sensible import Names, sensible_request

LONGEST = "n" * 32767
CASES = [(api, version) for api in served_apis() for version in sorted({api.min_version, api.max_version})]


def places(struct: Struct, version: int) -> Iterator[tuple[Struct, str]]:
    """Every text in a message, as (struct, name of the field); lists of texts included."""
    for field in struct.__fields__:
        if not field.versions.hold(version):
            continue
        if Kind.STRING in (field.kind, field.element):
            yield struct, field.name
        value = getattr(struct, field.name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                yield from places(inner, version)


def case_name(case: object) -> str:
    return case.name if isinstance(case, Api) else f"v{case}"


@pytest.mark.parametrize("api, version", CASES, ids=case_name)
def test_a_text_of_32_kib_is_answered_wherever_it_stands(
    broker: Broker, names: Names, api: Api, version: int
) -> None:
    count = len(list(places(sensible_request(api.key, version, names), version)))
    with RawConnection(broker.bootstrap_servers) as connection:
        for number in range(count):
            request = sensible_request(api.key, version, names)
            struct, field = list(places(request, version))[number]
            setattr(struct, field, [LONGEST] if isinstance(getattr(struct, field), list) else LONGEST)
            connection.ask(request, version)
        connection.ask(sensible_request(api.key, version, names), version, client_id=LONGEST)
