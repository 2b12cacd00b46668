"""Settings that cannot work are refused when they are given, in words."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.client.core.settings import BadSetting, ConsumerSettings, ProducerSettings, check_topics, make_settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linger": "5"}, "linger='5' is not a number of seconds"),
        ({"linger": -1}, "linger=-1 is below 0"),
        ({"batch_size": 0.5}, "not a whole number"),
        ({"max_in_flight": 0}, "max_in_flight=0 is below 1"),
        ({"transactional_id": 5}, "transactional_id=5 is not text"),
        ({"enable_idempotence": "false"}, "not True or False"),
        ({"compression": "zstd", "compression_level": 99}, "zstd has no compression_level=99"),
    ],
)
def test_a_producer_says_which_value_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        make_settings(ProducerSettings, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"group": 5}, "group=5 is not text"),
        ({"enable_auto_commit": "false"}, "not True or False"),
        ({"assignors": "range"}, "assignors='range' is not a list of names"),
        ({"session_timeout": True}, "not a number of seconds"),
        ({"session_timeout": 6.0, "heartbeat_interval": 10.0}, "heartbeat_interval=10.0 is not below session_timeout"),
        ({"session_timeout": 3.0}, "heartbeat_interval=3.0 is not below session_timeout=3.0"),
    ],
)
def test_a_consumer_says_which_value_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        make_settings(ConsumerSettings, given)


def test_what_can_be_is_taken() -> None:
    made = make_settings(ProducerSettings, {"linger": 0, "compression": "zstd", "compression_level": -3})
    assert made.linger == 0 and made.compression_level == -3
    assert make_settings(ConsumerSettings, {"group": None, "assignors": ["sticky"]}).group is None
    brokers_say_when = make_settings(ConsumerSettings, {"protocol": "consumer", "session_timeout": 1.0})
    assert brokers_say_when.session_timeout == 1.0


def test_topics_are_named_one_by_one_and_a_pattern_is_an_expression() -> None:
    settings = ConsumerSettings()
    check_topics(settings, ["a", "b"], None)
    with pytest.raises(TypeError, match=r"one by one.*\['a', 'b'\]"):
        check_topics(settings, [["a", "b"]], None)
    with pytest.raises(BadSetting, match="not a regular expression"):
        check_topics(settings, [], "[")
