"""What the demo draws: delay by airport and hour of the day, and the lag of each job over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from raftlog.pipeline.demo.kills import Kill

NEW_YORK = ZoneInfo("America/New_York")


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained")
    return figure, axes


def by_hour(hours: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """The mean delay in minutes, by airport and by hour of the day in New York."""
    sums: dict[tuple[str, int], float] = defaultdict(float)
    departed: dict[tuple[str, int], int] = defaultdict(int)
    for (origin, window), known in hours.items():
        hour = datetime.fromisoformat(window).astimezone(NEW_YORK).hour
        sums[origin, hour] += known.get("delay_sum") or 0
        departed[origin, hour] += known["departed"]
    found: dict[str, dict[int, float]] = {}
    for (origin, hour), count in sorted(departed.items()):
        if count:
            found.setdefault(origin, {})[hour] = sums[origin, hour] / count
    return found


def draw_delays(hours: Mapping[tuple[str, str], Mapping[str, Any]], flights: int, path: Path) -> None:
    """A row for each airport, a column for each hour, the delay as colour and number."""
    found = by_hour(hours)
    airports = sorted(found)
    columns = sorted({hour for known in found.values() for hour in known})
    figure, axes = _canvas(11, 0.9 + 0.6 * len(airports) + 0.8)
    cells = [[found[airport].get(hour, float("nan")) for hour in columns] for airport in airports]
    image = axes.imshow(cells, cmap="YlOrRd", aspect="auto", vmin=0)
    for row, airport in enumerate(airports):
        for column, hour in enumerate(columns):
            if hour in found[airport]:
                value = found[airport][hour]
                light = image.norm(value) > 0.6
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color="white" if light else "black")
    axes.set_xticks(range(len(columns)), [f"{hour:02d}" for hour in columns])
    axes.set_yticks(range(len(airports)), airports)
    axes.set_xlabel("hour of planned departure, New York")
    axes.set_title(f"Mean departure delay in minutes, {flights:,} flights of 2013")
    figure.colorbar(image, ax=axes, label="minutes")
    figure.savefig(path, dpi=120)


def draw_lag(lags: Mapping[str, Sequence[tuple[float, int]]], kills: Sequence[Kill], began: float, path: Path) -> None:
    """A line for each job: acknowledged flights that it had not done yet."""
    figure, axes = _canvas(11, 4.5)
    for name, points in lags.items():
        if points:
            axes.plot([at - began for at, _ in points], [left for _, left in points], lw=1.8, label=name)
    for kill in kills:
        axes.axvline(kill.at - began, color="black", ls="--", lw=1)
        words = f" {kill.who.split(' (')[0]} killed"
        axes.text(kill.at - began, 0.98, words, rotation=90, va="top", ha="right", transform=axes.get_xaxis_transform())
    axes.set_xlabel("seconds since the first flight was sent")
    axes.set_ylabel("flights acknowledged and not done yet")
    axes.set_title("Lag of each job over time")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
