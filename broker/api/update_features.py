"""UpdateFeatures (key 57), v0 to v2: finalize the levels of features (KIP-584, KIP-778), all or none (KIP-1022, v2)."""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.cluster_commands import FeatureUpdate, UpdateFeatures, UpgradeType
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE_TYPES_FROM = 1


@responds_later
async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """The answer comes when the levels are committed; an older client is told each feature that has its level."""
    updates = tuple(_update(context, each) for each in request.feature_updates)
    command = UpdateFeatures(updates, request.validate_only)
    answer = await context.services.controller.execute(command, metadata_timeout_seconds(request.timeout_ms))
    return UpdateFeaturesResponse(
        error_code=answer.error,
        error_message=answer.message,
        results=[
            UpdatableFeatureResult(feature=each.name, error_code=ErrorCode.NONE, error_message=ErrorCode.NONE.name)
            for each in updates
            if answer.error is ErrorCode.NONE
        ],
    )


def _update(context: RequestContext, update: FeatureUpdateKey) -> FeatureUpdate:
    kind = update.upgrade_type
    if context.api_version < _UPGRADE_TYPES_FROM:
        kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(update.feature, update.max_version_level, kind)
