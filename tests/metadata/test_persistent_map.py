"""The immutable mapping behaves like a dict that is copied on every change, and costs far less."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from raftlog.metadata.persistent_map import PersistentMap, bucket_of_bytes, bucket_of_string

changes = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=2), st.integers()), st.lists(st.text(max_size=2), max_size=4)),
    max_size=8,
)


@given(changes)
def test_it_equals_a_dict_after_any_changes(steps: list[tuple[dict[str, int], list[str]]]) -> None:
    mapping: PersistentMap[str, int] = PersistentMap(bucket_of_string)
    model: dict[str, int] = {}
    for put, removed in steps:
        before, before_model = mapping, dict(model)
        mapping = mapping.with_changes(put, removed)
        for key in removed:
            model.pop(key, None)
        model.update(put)
        mapping.check_invariants()
        assert dict(mapping.items()) == model
        assert sorted(mapping.values()) == sorted(model.values())
        assert len(mapping) == len(model) and set(mapping) == set(model)
        assert all(mapping[key] == model[key] and key in mapping for key in model)
        assert dict(before.items()) == before_model, "an older map changed"


def test_a_change_shares_all_but_one_bucket() -> None:
    first: PersistentMap[bytes, int] = PersistentMap(bucket_of_bytes, ((i.to_bytes(4, "big"), i) for i in range(9999)))
    second = first.with_changes({b"new": 1})
    different = sum(a is not b for a, b in zip(first._buckets, second._buckets, strict=True))
    assert different == 1


def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from raftlog.metadata.persistent_map import *;"
        "print(list(PersistentMap(bucket_of_string, ((f't{i}', i) for i in range(50)))))"
    )
    orders = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(orders) == 1
