# SPDX-License-Identifier: Apache-2.0
"""Samples, and what is made of them: medians, spreads, ratios.

A sample is one round's figure of one subject: the median of the steps that were timed in it. Rounds are
the unit of everything here: the figure of a subject is the median over its rounds, its spread the least
and the most of them, and two subjects are compared round by round.
"""
import math
from dataclasses import dataclass, field

# A probe of the hand-over between cores that differs by more than this says that the host has moved them.
PROBE_MOVED = 0.25
# Up to this size a step is made of hand-overs; beyond, of memory.
LATENCY_SIZE = 64 << 10


def median(values):
    """Of at least one value; of an even number, the mean of the two in the middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def probes_agree(*probes):
    """None: it could not be measured, as the cores were busy. Where nobody probed, none disagree."""
    if not probes:
        return True
    if any(p is None for p in probes):
        return False
    return max(probes) <= min(probes) * (1 + PROBE_MOVED)


@dataclass(frozen=True)
class Case:
    """What is measured: a subject and what it is given."""

    subject: str
    size: int = 0
    optimizer: str = ""
    trainers: int = 0


@dataclass
class Sample:
    us: float
    probes: tuple = ()  # core to core, ns: before and after
    more: dict = field(default_factory=dict)  # other figures of the same measurement

    def steady(self):
        return probes_agree(*self.probes)


@dataclass
class Figure:
    """Of a subject, or of a ratio, over rounds."""

    median: float
    least: float
    most: float
    rounds: int
    left_out: int = 0  # rounds whose probes moved
    unsteady: bool = False  # they moved in all rounds, and these are from those

    @staticmethod
    def of(values, left_out=0, unsteady=False):
        return Figure(median(values), min(values), max(values), len(values), left_out, unsteady)


def _usable(samples, latency):
    """Which rounds count: {round: sample}, how many were left out, whether none was steady."""
    if not latency:
        return samples, 0, False
    steady = {r: s for r, s in samples.items() if s.steady()}
    if not steady:
        return samples, 0, bool(samples)
    return steady, len(samples) - len(steady), False


class Samples:
    """All samples of a run: by case and round."""

    def __init__(self):
        self.by_case = {}

    def add(self, case, number, sample):
        if not math.isfinite(sample.us) or sample.us <= 0:
            raise ValueError(f"{case.subject}: a time of {sample.us} µs")
        self.by_case.setdefault(case, {})[number] = sample

    def of(self, case):
        return self.by_case.get(case, {})

    def figure(self, case, only=lambda sample: True):
        """None: there is no such sample."""
        chosen = {r: s for r, s in self.of(case).items() if only(s)}
        samples, left_out, unsteady = _usable(chosen, case.size <= LATENCY_SIZE)
        if not samples:
            return None
        return Figure.of([s.us for s in samples.values()], left_out, unsteady)

    def ratio(self, above, below, latency=None, value=lambda sample: sample.us):
        """How many times `below` goes into `above`, round by round; None: no round has both. With
        `latency` (small sizes), only rounds in which the cores were equally far apart for both."""
        if latency is None:
            latency = above.size <= LATENCY_SIZE
        a, b = self.of(above), self.of(below)
        both = sorted(set(a) & set(b))
        like = [r for r in both if not latency or probes_agree(*a[r].probes, *b[r].probes)]
        chosen = like or both
        if not chosen:
            return None
        return Figure.of(
            [value(a[r]) / value(b[r]) for r in chosen],
            len(both) - len(chosen),
            bool(latency and not like),
        )


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdigit() or not 4 <= int(digits) * unit <= 1 << 30 or int(digits) * unit % 4:
        raise ValueError(f"{text}: a size is 4 to 1G, and a multiple of 4, as 4K or 64M")
    return int(digits) * unit
