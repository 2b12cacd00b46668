"""Features and their levels (KIP-584): what this version knows, and who may change a level."""

from __future__ import annotations

from raftlog.metadata.cluster_commands import FeaturesUpdated, FeatureUpdate, UpdateFeatures, UpgradeType
from raftlog.metadata.decision import Decision, Environment
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import FeatureLevelRecord
from raftlog.wire.errors import ErrorCode


def update_features(
    image: MetadataImage, command: UpdateFeatures, environment: Environment
) -> Decision[FeaturesUpdated]:
    """Decide UpdateFeatures: all of them or none."""
    records: list[FeatureLevelRecord] = []
    # By name, as Kafka keeps them: of a feature that is named twice the later level counts.
    for update in {update.name: update for update in command.updates}.values():
        problem = _problem(image, update, environment)
        if problem is not None:
            text = "The update failed for all features since the following feature had an error: "
            text += f"Invalid update version {update.level} for feature {update.name}. {problem}"
            return Decision((), FeaturesUpdated(ErrorCode.INVALID_UPDATE_VERSION, text))
        if image.features.get(update.name, 0) != update.level:
            records.append(FeatureLevelRecord(update.name, update.level))
    return Decision(() if command.validate_only else tuple(records), FeaturesUpdated(ErrorCode.NONE))


def _problem(image: MetadataImage, update: FeatureUpdate, environment: Environment) -> str | None:
    """What is wrong with a level, for INVALID_UPDATE_VERSION."""
    name, level, known = update.name, update.level, environment.features
    controller = f"Local controller {environment.node_id}"
    current = image.features.get(name, 0)
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if name not in known:
        return f"{controller} does not support this feature."
    if level < 0:
        return "A feature version cannot be less than 0."
    low, high = known[name]
    if not (low <= level <= high or (level == 0 and low == 0)):
        return f"{controller} only supports versions {low}-{high}"
    for broker_id, broker in sorted(image.brokers.items()):
        ranges = {feature.name: feature for feature in broker.features}
        if broker.features and (name not in ranges or not ranges[name].min_level <= level <= ranges[name].max_level):
            supported = f"{ranges[name].min_level}-{ranges[name].max_level}" if name in ranges else "0"
            return f"Broker {broker_id} only supports versions {supported}: upgrade it first, or unregister it."
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        text = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        return f"{text} downgrade."
    return None
