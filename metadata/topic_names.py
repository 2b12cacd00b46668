"""Which topic names are allowed, and which of them collide in metric names."""

from __future__ import annotations

MAX_TOPIC_NAME_LENGTH = 249
"""Kafka's limit: `<name>-<partition>.<suffix>` must fit a file name of 255 bytes."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def topic_name_error(name: str) -> str | None:
    """What is wrong with a topic name, for INVALID_TOPIC_EXCEPTION; None for a legal one."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"Topic name is invalid: it has {len(name)} characters, more than {MAX_TOPIC_NAME_LENGTH}"
    if not _LEGAL.issuperset(name):
        return f"Topic name is invalid: '{name}' has characters other than a-z, A-Z, 0-9, '.', '_' and '-'"
    return None


def colliding_form(name: str) -> str | None:
    """The form that names differing only in '.' and '_' have in common; None for a name without either."""
    if "." in name or "_" in name:
        return name.replace(".", "_")
    return None
