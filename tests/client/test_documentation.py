"""Every example of docs/CLIENT.md runs, in its order, against one broker."""

from __future__ import annotations

import ast
import asyncio
import re
from typing import Any

from raftlog.client import Client
from raftlog.client.core.settings import (
    ConsumerOptions,
    ConsumerSettings,
    ProducerOptions,
    ProducerSettings,
)
from raftlog.wire.apis import ApiKey
from tests.client.conftest import skip_without
from tests.conftest import Broker
from tests.paths import ROOT

TEXT = (ROOT / "docs" / "CLIENT.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(example: str, names: dict[str, Any]) -> Any:
    code = compile(example, "docs/CLIENT.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return eval(code, names)


async def test_the_examples_run(broker: Broker) -> None:
    assert len(EXAMPLES) >= 8
    async with Client(broker.bootstrap_servers) as client:
        await skip_without(client, ApiKey.TXN_OFFSET_COMMIT)
        for topic in ("orders", "invoices"):
            await client.admin.create_topic(f"client-{topic}", partitions=1)
    names: dict[str, Any] = {"print": lambda *_: None}
    for example in EXAMPLES:
        text = example.replace("localhost:9092", broker.bootstrap_servers)
        # Other documents have topics of these names too.
        text = text.replace('"orders"', '"client-orders"').replace('"invoices"', '"client-invoices"')
        if "with SyncClient" in text and "await" not in text:
            await asyncio.to_thread(run, text, names)
        elif (running := run(text, names)) is not None:
            await running


def test_every_setting_is_told() -> None:
    for settings, options in ((ProducerSettings, ProducerOptions), (ConsumerSettings, ConsumerOptions)):
        assert list(settings.__dataclass_fields__) == list(options.__annotations__)
        untold = [name for name in options.__annotations__ if f"`{name}`" not in TEXT]
        assert not untold, untold
