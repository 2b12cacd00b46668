"""Levels of features (KIP-584): who may change them, and to what."""

from __future__ import annotations

import pytest

from raftlog.metadata.cluster_commands import FeatureUpdate, UnregisterBroker, UpdateFeatures, UpgradeType
from raftlog.metadata.commands import InitializeCluster, RegisterBroker
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.metadata.records import FeatureRange
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import World

NAME = "raftlog.metadata.version"


def world_of(*highest: int, known: int = 3) -> World:
    """Brokers that know levels up to these; the controller knows `known`."""
    world = World(brokers=0)
    world.environment = world.environment._replace(features={NAME: (1, known)})
    for number, level in enumerate(highest, 1):
        incarnation = bytes([number]) * 16
        features = (FeatureRange(NAME, 1, level),)
        world.execute(RegisterBroker(number, incarnation, (), fenced=number > 1, features=features))
    return world


def update(world: World, level: int, kind: int = UpgradeType.UPGRADE) -> tuple[ErrorCode, str | None]:
    answer = world.execute(UpdateFeatures((FeatureUpdate(NAME, level, kind),)))
    return answer.error, answer.message


def test_a_level_goes_up_when_all_brokers_know_it() -> None:
    world = world_of(3, 2)
    error, message = update(world, 3)
    assert error is ErrorCode.INVALID_UPDATE_VERSION
    assert message and "Broker 2 only supports versions 1-2: upgrade it first, or unregister it." in message
    world.execute(UnregisterBroker(2))
    assert update(world, 3) == (ErrorCode.NONE, None)
    assert world.image.features == {NAME: 3}


def test_a_level_goes_down_only_on_purpose() -> None:
    world = world_of(3)
    update(world, 3)
    assert update(world, 2)[0] is ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, 2, UpgradeType.SAFE_DOWNGRADE)[0] is ErrorCode.NONE
    assert update(world, 3, UpgradeType.SAFE_DOWNGRADE)[0] is ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.features == {NAME: 2}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ((FeatureUpdate("no.such.feature", 1),), ErrorCode.INVALID_UPDATE_VERSION),
        ((FeatureUpdate(NAME, 4),), ErrorCode.INVALID_UPDATE_VERSION),
        ((FeatureUpdate(NAME, 0),), ErrorCode.INVALID_UPDATE_VERSION),
        ((FeatureUpdate(NAME, -1),), ErrorCode.INVALID_UPDATE_VERSION),
        ((FeatureUpdate(NAME, 2, 9),), ErrorCode.INVALID_UPDATE_VERSION),
        ((FeatureUpdate(NAME, 2), FeatureUpdate(NAME, 4)), ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_what_cannot_be_is_refused_as_a_whole(changes: tuple[FeatureUpdate, ...], error: ErrorCode) -> None:
    world = world_of(3)
    answer = world.execute(UpdateFeatures((*changes,)))
    assert answer.error is error and answer.message
    assert not world.image.features


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (FeatureUpdate("no.such.feature", 1), "Local controller 7 does not support this feature."),
        (FeatureUpdate(NAME, 9), "Local controller 7 only supports versions 1-3"),
        (FeatureUpdate(NAME, -3), "A feature version cannot be less than 0."),
        (FeatureUpdate(NAME, 2, 9), "The controller does not support the given upgrade type."),
    ],
)
def test_a_refusal_says_why_in_kafkas_words(change: FeatureUpdate, reason: str) -> None:
    world = world_of(3)
    world.environment = world.environment._replace(node_id=7)
    answer = world.execute(UpdateFeatures((change,)))
    why = "The update failed for all features since the following feature had an error:"
    assert answer.message == f"{why} Invalid update version {change.level} for feature {change.name}. {reason}"


def test_of_a_feature_that_is_named_twice_the_later_level_counts() -> None:
    world = world_of(3)
    assert world.execute(UpdateFeatures((FeatureUpdate(NAME, 4), FeatureUpdate(NAME, 2)))).error is ErrorCode.NONE
    assert world.image.features == {NAME: 2}


def test_a_question_changes_nothing() -> None:
    world = world_of(3)
    command = UpdateFeatures((FeatureUpdate(NAME, 3),), validate_only=True)
    assert world.execute(command).error is ErrorCode.NONE
    assert not world.image.features


@pytest.mark.parametrize("name", ["group.version", "transaction.version"])
def test_a_cluster_of_an_earlier_version_has_level_0_until_it_is_raised(name: str) -> None:
    world = World(brokers=0)
    world.environment = world.environment._replace(features=SUPPORTED_FEATURES)
    world.execute(InitializeCluster("old", {"raftlog.metadata.version": 1}))
    world.execute(RegisterBroker(1, b"1" * 16, (), features=(FeatureRange("raftlog.metadata.version", 1, 1),)))
    assert name not in world.image.features
    raised = UpdateFeatures((FeatureUpdate(name, 1),))
    assert world.execute(raised).error is ErrorCode.INVALID_UPDATE_VERSION
    features = tuple(FeatureRange(each, *levels) for each, levels in SUPPORTED_FEATURES.items())
    world.execute(RegisterBroker(1, b"2" * 16, (), features=features))
    assert world.execute(raised).error is ErrorCode.NONE
    assert world.image.features[name] == 1
    lowered = UpdateFeatures((FeatureUpdate(name, 0, UpgradeType.SAFE_DOWNGRADE),))
    assert world.execute(lowered).error is ErrorCode.NONE
    assert name not in world.image.features


def test_a_broker_that_does_not_know_a_level_cannot_register() -> None:
    world = world_of(3, 2)
    world.execute(UnregisterBroker(2))
    assert update(world, 3) == (ErrorCode.NONE, None)
    why = "Unable to register because the broker does not support finalized version 3 of raftlog.metadata.version. The"
    for features, known in (((FeatureRange(NAME, 1, 2),), "1 and 2"), ((FeatureRange("other", 0, 9),), "0 and 0")):
        answer = world.execute(RegisterBroker(2, b"2" * 16, (), fenced=True, features=features))
        assert answer.error is ErrorCode.UNSUPPORTED_VERSION
        assert answer.message == f"{why} broker wants a version between {known}, inclusive."
    assert 2 not in world.image.brokers
    answer = world.execute(RegisterBroker(2, b"3" * 16, (), fenced=True, features=(FeatureRange(NAME, 1, 3),)))
    assert answer.error is ErrorCode.NONE
