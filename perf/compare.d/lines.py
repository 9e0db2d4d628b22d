# SPDX-License-Identifier: Apache-2.0
"""What gradslot must show, judged from a run's samples: each line holds, falls short by so much, or could
not be judged, and says why."""
from dataclasses import dataclass, field

from figures import Case, Figure, size_text

BIG = 64 << 20
SMALL = 4 << 10
# Core to core, ns, up to which a step of 4 KiB is asked to take 1.5 µs.
NEAR_NS = 60

AT_MOST, AT_LEAST = "at most", "at least"


@dataclass
class Line:
    text: str
    figure: Figure = None  # None: not judged
    sense: str = AT_MOST
    limit: float = 0
    unit: str = ""
    note: str = ""
    also: dict = field(default_factory=dict)  # more figures for the JSON

    def holds(self):
        if self.figure is None:
            return None
        if self.sense == AT_MOST:
            return self.figure.median <= self.limit
        return self.figure.median >= self.limit

    def short_by(self):
        """In percent of the limit; 0 when it holds."""
        if self.holds() is not False:
            return 0
        return abs(self.figure.median - self.limit) / self.limit * 100

    def verdict(self):
        if self.figure is None:
            return "NOT JUDGED"
        return "PASS" if self.holds() else f"SHORT by {self.short_by():.0f} %"


def not_judged(text, why):
    return Line(text, note=why)


def ratio_line(samples, text, above, below, sense, limit, note="", why="", **more):
    """`above` over `below`, round by round."""
    found = samples.ratio(above, below, **more)
    if found is None:
        lacking = [c.subject for c in (above, below) if not samples.of(c)]
        reason = f"no figure of {' and '.join(lacking)}" if lacking else "no round has both"
        return not_judged(text, why or reason)
    return Line(text, found, sense, limit, "x", note)


def latency_lines(samples):
    spin, wake, sleep = (Case(n, SMALL, *more) for n, *more in (("spin", "sgd", 1), ("wake",), ("sleep", "sgd", 1)))
    exchange = Case("exchange", SMALL, "sgd", 1)
    near = samples.figure(spin, lambda s: s.steady() and max(s.probes) <= NEAR_NS)
    text = f"4 KiB step, spinning: p50 while the cores are near (probe <= {NEAR_NS} ns)"
    if near:
        yield Line(text, near, AT_MOST, 1.5, "us")
    elif samples.of(spin):
        got = samples.figure(spin)
        yield not_judged(text, f"the probe never read so little; the step took {got.median:.2f} us")
    else:
        yield not_judged(text, "no figure of spin")
    yield ratio_line(
        samples, "4 KiB step, spinning, over the bare exchange", spin, exchange, AT_MOST, 2
    )
    for text, key in (("where the scheduler puts both", "us"), ("between two cores", "apart_us")):
        yield ratio_line(
            samples, f"4 KiB step, sleeping, over an eventfd round trip {text}", sleep, wake, AT_MOST, 1.3,
            latency=False, value=lambda s, key=key: s.more.get(key, s.us),
        )  # fmt: skip


def floor_lines(samples):
    limits = {"view": (0.85, "zero-copy, read in place"), "pull": (0.85, "zero-copy, pulled"), "copy": (0.8, "with copies")}
    for optimizer in ("sgd", "adam"):
        for trainers in (1, 2):
            floor = Case("floor", BIG, optimizer, trainers)
            for name, (limit, shown) in limits.items():
                step = Case(name, BIG, optimizer, trainers)
                text = f"64 MiB {optimizer}, {trainers} trainer{'s' * (trainers > 1)}, {shown}: of the memory floor"
                line = of_floor(samples, text, floor, step, name, limit)
                yield line


def of_floor(samples, text, floor, step, name, limit):
    def of(kind):
        def value(sample):
            return sample.more.get(kind, sample.us)

        return samples.ratio(floor, step, False, value)

    found, few = of(f"{name}_us"), of(f"{name}_few_us")
    if found is None:
        return ratio_line(samples, text, floor, step, AT_LEAST, limit)
    note = f"{few.median:.2f} of a floor made by as many threads as there are trainers"
    return Line(text, found, AT_LEAST, limit, "", note, {"of_few": few.median})


def rival_lines(samples):
    for rival, shown in (("mpi", "OpenMPI Allreduce + step"), ("gloo", "PyTorch gloo + step")):
        for optimizer in ("sgd", "adam"):
            for name, limit, how in (("view", 5, "zero-copy"), ("copy", 1.5, "with copies")):
                yield ratio_line(
                    samples,
                    f"64 MiB {optimizer}, 2 trainers, {how}: faster than {shown}",
                    Case(rival, BIG, optimizer, 2),
                    Case(name, BIG, optimizer, 2),
                    AT_LEAST,
                    limit,
                )


def grpc_lines(samples, sizes):
    for size in sizes:
        for name, how in (("spin", "spinning"), ("pull", "zero-copy, pulled"), ("copy", "with copies")):
            if name == "spin" and size > 1 << 20:
                continue
            yield ratio_line(
                samples,
                f"{size_text(size)}, 1 trainer, {how}: faster than gRPC",
                Case("grpc", size, "sgd", 1),
                Case(name, size, "sgd", 1),
                AT_LEAST,
                10,
                latency=False,
            )


def extra_lines(extras, not_run):
    """extras: what extras.py gave, by name."""
    text = "10,000 parameters of 1 KiB: a step over that of one of 10 MB"
    if "scale" in extras:
        yield Line(text, Figure.of([extras["scale"]]), AT_MOST, 1.5, "x")
    else:
        yield not_judged(text, not_run.get("scale", "not asked for"))
    text = "an idle server: of a core"
    if "idle" in extras:
        yield Line(text, Figure.of([extras["idle"]]), AT_MOST, 1, "%")
    else:
        yield not_judged(text, not_run.get("idle", "not asked for"))
    if "cost" not in extras:
        yield not_judged("instructions for each gradient at the server", not_run.get("cost", "not asked for"))
    for row in extras.get("cost", []):
        what = f"instructions for each gradient: {row['mode']}, {row['trainers']} trainers, {row['blocks']} blocks"
        yield Line(what, Figure.of([row["instructions"]]), AT_MOST, row["budget"])
        if row["growth_percent"]:
            yield Line(f"{what}: growth", Figure.of([row["growth_percent"]]), AT_MOST, 30, "%")


def native_lines(samples, sizes, extras, not_run):
    yield from latency_lines(samples)
    yield from floor_lines(samples)
    yield from rival_lines(samples)
    yield from grpc_lines(samples, sizes)
    yield from extra_lines(extras, not_run)


def guest_lines(samples, sizes):
    rows = (
        ("latency", "there_and_back", "push latency, update and all, over ib_write_lat", AT_MOST, 1.15, False),
        ("without_update", "there_and_back", "push latency, without the update, over ib_write_lat", AT_MOST, 1.15, False),
        ("push", "write_bw", "push bandwidth over ib_write_bw", AT_LEAST, 0.95, True),
        ("pull", "read_bw", "pull bandwidth over ib_read_bw", AT_LEAST, 0.95, True),
    )
    for ours, theirs, shown, sense, limit, rate in rows:
        for size in sizes:
            # As all samples are times, the ratio of two rates is that of the times the other way round.
            above, below = Case(ours, size), Case(theirs, size)
            if rate:
                above, below = below, above
            yield ratio_line(
                samples, f"{size_text(size)}: {shown}", above, below, sense, limit, latency=False
            )
