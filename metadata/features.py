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
    results: list[tuple[str, ErrorCode, str | None]] = []
    records: list[FeatureLevelRecord] = []
    for update in command.updates:
        repeated = sum(update.name == other.name for other in command.updates) > 1
        problem = _problem(image, update, environment, repeated)
        if problem is not None:
            results.append((update.name, *problem))
            continue
        results.append((update.name, ErrorCode.NONE, None))
        if image.features.get(update.name, 0) != update.level:
            records.append(FeatureLevelRecord(update.name, update.level))
    failed = next((result for result in results if result[1] is not ErrorCode.NONE), None)
    if failed is not None:
        text = f"The update failed for all features since the following feature had an error: {failed[2]}"
        return Decision((), FeaturesUpdated(failed[1], text, tuple(results)))
    done = FeaturesUpdated(ErrorCode.NONE, None, tuple(results))
    return Decision(() if command.validate_only else tuple(records), done)


def _problem(
    image: MetadataImage, update: FeatureUpdate, environment: Environment, repeated: bool
) -> tuple[ErrorCode, str] | None:
    name, level, known = update.name, update.level, environment.features
    invalid, controller = ErrorCode.INVALID_UPDATE_VERSION, f"Local controller {environment.node_id}"
    current = image.features.get(name, 0)
    if repeated:
        return ErrorCode.INVALID_REQUEST, f"Provided feature {name} is named more than once."
    if update.upgrade_type not in tuple(UpgradeType):
        return invalid, _invalid(update, "The controller does not support the given upgrade type.")
    if name not in known:
        return invalid, _invalid(update, f"{controller} does not support this feature.")
    if level < 0:
        return invalid, _invalid(update, "A feature version cannot be less than 0.")
    low, high = known[name]
    if not (low <= level <= high or (level == 0 and low == 0)):
        text = f"{controller} only supports versions {low}-{high}"
        return invalid, _invalid(update, text)
    for broker_id, broker in sorted(image.brokers.items()):
        ranges = {feature.name: feature for feature in broker.features}
        if broker.features and (name not in ranges or not ranges[name].min_level <= level <= ranges[name].max_level):
            supported = f"{ranges[name].min_level}-{ranges[name].max_level}" if name in ranges else "0"
            text = f"Broker {broker_id} only supports versions {supported}: upgrade it first, or unregister it."
            return invalid, _invalid(update, text)
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        text = "Can't downgrade to a newer version."
        return invalid, _invalid(update, text)
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        text = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        return invalid, _invalid(update, f"{text} downgrade.")
    return None


def _invalid(update: FeatureUpdate, reason: str) -> str:
    return f"Invalid update version {update.level} for feature {update.name}. {reason}"
