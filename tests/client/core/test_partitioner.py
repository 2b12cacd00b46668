from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from raftlog.client.core.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=40))
def test_the_hash_is_that_of_kafkas_clients(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_known_keys_go_where_the_java_client_sends_them() -> None:
    # Utils.murmur2 of the Java client, from its own tests.
    assert [murmur2(key) - (1 << 32 if murmur2(key) >> 31 else 0) for key in (b"21", b"foobar")] == [
        -973932308,
        -790332482,
    ]
    assert partition_for_key(b"foobar", 1) == 0


def test_a_key_of_any_bytes_goes_where_the_same_bytes_go() -> None:
    expected = partition_for_key(b"foobar", 7)
    assert partition_for_key(bytearray(b"foobar"), 7) == expected
    assert partition_for_key(memoryview(bytearray(b"foobar")), 7) == expected
