from __future__ import annotations

import pytest

from raftlog.client.core.addresses import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:19092", Address("localhost", 19092)),
        (" example.org ", Address("example.org", 9092)),
        ("[::1]:9093", Address("::1", 9093)),
        ("[fe80::1]", Address("fe80::1", 9092)),
        ("PLAINTEXT://127.0.0.1:1", Address("127.0.0.1", 1)),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "a:b", "a:0", "a:65536", "::1:9092", "[::1", "[::1]x", "SSL://a:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


def test_an_address_is_printed_as_it_can_be_read_again() -> None:
    for address in (Address("::1", 9092), Address("localhost", 1)):
        assert parse_address(str(address)) == address


def test_several_addresses_stand_with_commas() -> None:
    assert parse_addresses("a:1, b ,") == [Address("a", 1), Address("b", 9092)]
    with pytest.raises(ValueError, match="no address"):
        parse_addresses(" , ")


def test_several_addresses_may_be_a_list() -> None:
    assert parse_addresses(["a:1", Address("b", 9092)]) == [Address("a", 1), Address("b", 9092)]
    for wrong in (b"a:1", None, [("a", 1)], [b"a:1"]):
        with pytest.raises(TypeError, match="like 'host:9092'"):
            parse_addresses(wrong)  # type: ignore[arg-type]
