"""Who sends a request to a group."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """Who sends the request. `random_id` makes the member id unique, should one be given out."""

    client_id: str
    client_host: str
    api_version: int
    random_id: str
