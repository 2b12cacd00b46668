"""Metrics in the form of Prometheus's client library. Imported with the first page: the library takes 50 ms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from raftlog.broker.metrics.sources import Pauses
from raftlog.histogram import Histogram

SERIES_AT_A_TIME: Final = 64
"""They are made and written in a millisecond."""

Labelled = Iterable[tuple[Sequence[str], float]]


def gauge(name: str, documentation: str, value: float) -> Metric:
    """One value that goes up and down."""
    return GaugeMetricFamily(name, documentation, value=value)


def counter(name: str, documentation: str, value: float) -> Metric:
    """One value that only goes up; the library writes `_total` behind its name."""
    return CounterMetricFamily(name, documentation, value=value)


def gauges(name: str, documentation: str, labels: Sequence[str], values: Labelled) -> Metric:
    """One value for each set of labels."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


async def many_gauges(
    name: str, documentation: str, labels: Sequence[str], values: Labelled, pauses: Pauses
) -> Metric:
    """The same for thousands of them."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for number, (label_values, value) in enumerate(values):
        if number % SERIES_AT_A_TIME == 0:
            await pauses.pause()
        family.add_metric(label_values, value)
    return family


def counters(name: str, documentation: str, labels: Sequence[str], values: Labelled) -> Metric:
    """The same for values that only go up."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def histograms(name: str, documentation: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    """One histogram for each value of a label."""
    family = HistogramMetricFamily(name, documentation, labels=[label])
    for value, histogram in values.items():
        family.add_metric([value], histogram.cumulative(), histogram.total)
    return family


def histogram(name: str, documentation: str, values: Histogram) -> Metric:
    """One histogram."""
    return HistogramMetricFamily(name, documentation, buckets=values.cumulative(), sum_value=values.total)


def with_total(name: str, documentation: str, label: str, total: float, parts: Labelled) -> Metric:
    """As Kafka has it: one value without a label for all, and one for each topic."""
    family = counters(name, documentation, [label], parts)
    family.add_sample(f"{name}_total", {}, total)
    return family


def written(family: Metric) -> Iterator[bytes]:
    """The text of a family, some series at a time."""
    samples = family.samples
    for first in range(0, len(samples) or 1, SERIES_AT_A_TIME):
        family.samples = samples[first : first + SERIES_AT_A_TIME]
        text = generate_latest(_One(family))
        # What it is and of which type is said once, in two lines.
        yield text if not first else text.split(b"\n", 2)[2]


class _One:
    """A collector of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
