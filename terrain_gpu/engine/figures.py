"""The figures of a run on a cluster, for its report."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..facts import Findings
from .worker import TaskFigures


class Figures:
    """Counts of a run's messages, and the figures that workers returned."""

    def __init__(self) -> None:
        self.tasks = self.retries = self.bytes_sent = self.bytes_received = 0
        self.loading: float | None = None
        self.done: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.first: dict[str, TaskFigures] = {}
        self.last: dict[str, TaskFigures] = {}

    def sent(self, *parts: bytes) -> None:
        """Count a submitted task."""
        self.tasks += 1
        self.bytes_sent += sum(map(len, parts))

    def received(self, result: bytes, figures: TaskFigures) -> None:
        """Count a finished task."""
        self.bytes_received += len(result)
        self.done[figures.worker] += 1
        self.seconds[figures.worker] += figures.seconds
        self.processor[figures.worker] += figures.processor
        # Results of a worker's threads may arrive out of order.
        self.first[figures.worker] = min(
            self.first.get(figures.worker, figures), figures, key=lambda task: task.before
        )
        self.last[figures.worker] = max(
            self.last.get(figures.worker, figures), figures, key=lambda task: task.after
        )

    def began(self, first: list[tuple[TaskFigures, int]], seconds: float, items: int) -> None:
        """Count the time that the first tasks of a phase took beyond the usual time of their items.

        Parameters
        ----------
        first
            These tasks, and the number of items of each.
        seconds, items
            Processor seconds of all later tasks, and their items.
        """
        if items:
            loading = sum(figures.processor - count * seconds / items for figures, count in first)
            self.loading = (self.loading or 0.0) + max(loading, 0.0)

    def as_dict(self) -> Findings:
        """Return the entries for the report."""
        return {
            "tasks": self.tasks,
            "retries": self.retries,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "loading_seconds": self.loading,
            "worker_peak_rss_bytes": max(
                (figures.peak for figures in self.last.values()), default=0
            ),
            "each": {
                worker: {
                    "host": last.host,
                    "tasks": self.done[worker],
                    "seconds": self.seconds[worker],
                    "processor_seconds": self.processor[worker],
                    "peak_rss_bytes": last.peak,
                    "bytes_read": last.after[0] - self.first[worker].before[0],
                    "bytes_written": last.after[1] - self.first[worker].before[1],
                }
                for worker, last in sorted(self.last.items())
            },
        }


SAME = "host", "peak_rss_bytes"
"""Figures of a worker that are not added up."""


def figures_of_both(one: Findings, other: Findings) -> Findings:
    """Combine the report entries of two runs by the same client; the second is `other`."""
    counted = "tasks", "retries", "bytes_sent", "bytes_received"
    peak, each = "worker_peak_rss_bytes", {**one["each"], **other["each"]}
    for worker in one["each"].keys() & other["each"].keys():
        first, last = one["each"][worker], other["each"][worker]
        added = {key: first[key] + last[key] for key in first if key not in SAME}
        peaks = max(first["peak_rss_bytes"], last["peak_rss_bytes"])
        each[worker] = {**last, **added, "peak_rss_bytes": peaks}
    sums = {key: one[key] + other[key] for key in counted}
    loading = [one["loading_seconds"], other["loading_seconds"]]
    if None not in loading:
        sums["loading_seconds"] = sum(loading)
    return {**other, **sums, peak: max(one[peak], other[peak]), "each": each}
