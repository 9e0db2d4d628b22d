# SPDX-License-Identifier: Apache-2.0
"""What is measured natively: each subject knows which cases it has and how to take one sample."""
import os
import random
import shutil
from pathlib import Path

from command import NotRun, run_json, run_with_server
from figures import Case, Sample

TOP = Path(__file__).resolve().parents[2]
# Another build may be measured by the same programs.
BUILD = Path(os.environ.get("COMPARE_BUILD") or TOP / "build" / "release")
MINE = TOP / "build" / "release" / "perf"
REFERENCE = MINE / "perf_reference"
GRADSLOT = BUILD / "gradslot"
PROGRAMS = MINE / "compare.d"

# glibc's malloc asks for huge pages for what is large: whoever measures has them if there are any.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

CORES = os.cpu_count() or 1
BIG = 64 << 20


class Subject:
    """name: how figures are filed; shown: how they are called in the table."""

    group = ""  # what --only names

    def __init__(self, name, shown):
        self.name, self.shown = name, shown

    def cases(self, size):
        raise NotImplementedError

    def sample(self, case, seconds):
        raise NotImplementedError


def update_cases(name, size, trainers):
    """SGD at every size, Adam where the memory floor is asked for."""
    optimizers = ("sgd", "adam") if size == BIG else ("sgd",)
    return [Case(name, size, o, t) for o in optimizers for t in trainers]


# ---- the machine itself ---------------------------------------------------------------------------


class Kernels(Subject):
    """memcpy, STREAM's triad and the update loops, each alone, by one thread."""

    group = "floor"

    def cases(self, size):
        return [Case(self.name, size)]

    def sample(self, case, seconds):
        time = ["--duration", "0", "--iters", max(5, int(9 * min(seconds, 1)))]
        found = run_json([GRADSLOT, "bench", "apply", "--size", case.size, "--json", *time])
        return kernels_sample(found, case.size)


def kernels_sample(found, size):
    """One sample of memcpy's time; the rates of all are beside it. Of the sets, the last is the widest."""
    rates = {}
    for point in found["points"]:
        for row in point["rules"]:
            if point["bytes"] == size and row["dtype"] == "f32":
                rates[row["rule"]] = row["gb_per_s"]
    kept = {name: rates[name] for name in ("memcpy", "triad", "sgd", "adam")}
    return Sample(2 * size / rates["memcpy"] / 1e3, more={f"{n}_gb_per_s": v for n, v in kept.items()})


class Floor(Subject):
    """The memory's part of a step: the least, by all cores; and by as many threads as there are trainers."""

    group = "floor"

    def cases(self, size):
        return update_cases(self.name, size, (1, 2))

    def sample(self, case, seconds):
        def measure(threads):
            return run_json(
                [REFERENCE, "floor", case.size, case.optimizer, case.trainers, int(seconds * 400), threads]
            )

        most = measure(min(CORES, 16))
        few = min(case.trainers, CORES)
        less = measure(few) if few < CORES else most
        more = {f"{k}_us": most[f"{k}_us"] for k in ("view", "pull", "copy", "in", "update", "out", "read")}
        more.update({f"{k}_few_us": less[f"{k}_us"] for k in ("view", "pull", "copy")})
        return Sample(most["pull_us"], more=more)


class Exchange(Subject):
    group = "exchange"
    SIZES = (4 << 10, 1 << 20, 16 << 20)

    def cases(self, size):
        return [Case(self.name, size, "sgd", 1)] if size in self.SIZES else []

    def sample(self, case, seconds):
        if CORES < 2:
            raise NotRun("two processes that spin need two cores")
        steps = max(20, int(seconds * 1e9 / (case.size * 0.15 + 700) / 2))
        found = run_json([REFERENCE, "exchange", case.size, min(steps, 1000000)])
        return Sample(found["p50_us"], more={"p99_us": found["p99_us"]})


class Wake(Subject):
    group = "wake"

    def cases(self, size):
        return [Case(self.name, size)] if size == 4 << 10 else []

    def sample(self, case, seconds):
        found = run_json([REFERENCE, "wake", max(1000, int(seconds * 10000))])
        return Sample(found["p50_us"], more={"apart_us": found["apart_us"]})


# ---- gradslot -------------------------------------------------------------------------------------


class Steps(Subject):
    """gradslot bench step."""

    group = "gradslot"

    def __init__(self, name, shown, options, trainers=(1, 2), most=1 << 30, adam=True):
        super().__init__(name, shown)
        self.options, self.trainers, self.most, self.adam = options, trainers, most, adam

    def cases(self, size):
        if size > self.most:
            return []
        cases = update_cases(self.name, size, self.trainers)
        return [c for c in cases if self.adam or c.optimizer == "sgd"]

    def sample(self, case, seconds):
        time = (
            ["--duration", round(seconds), "--iters", "5"]
            if seconds >= 1
            else ["--duration", "0", "--iters", max(12, int(seconds * 1e9 / (case.size * 0.3 + 20000)))]
        )
        # In its first 0.1 s the scheduler may leave a new process beside the one that it waits for.
        warm = ["--warmup", max(10, int(0.2e9 / (case.size * 0.3 + 7000)))]
        found = run_json(
            [GRADSLOT, "bench", "step", "--transport", "shm", "--size", case.size, "--trainers", case.trainers]
            + ["--optimizer", case.optimizer, "--rounds", "1", "--json", *warm, *time, *self.options]
        )
        return Sample(
            found["step_us_p50"], more={"p99_us": found["step_us_p99"], "samples": found["samples"]}
        )


# ---- what a user would take instead ---------------------------------------------------------------


class Ucx(Subject):
    """One-sided puts over shared memory. No one is told, nothing is updated, nothing comes back."""

    group = "ucx"

    def __init__(self, name, shown, test):
        super().__init__(name, shown)
        self.test = test

    def cases(self, size):
        return [Case(self.name, size)]

    def sample(self, case, seconds):
        if not shutil.which("ucx_perftest"):
            raise NotRun("ucx_perftest is not there (Debian's package ucx-utils)")
        best, why = None, None
        for tls in ("posix", "sysv"):
            try:
                found = self.measure(case.size, seconds / 2, tls)
            except NotRun as reason:
                why = reason
                continue
            if best is None or found < best[0]:
                best = (found, tls)
        if best is None:
            raise why
        return Sample(best[0], more={"tls": best[1]})

    def measure(self, size, seconds, tls):
        port = random.randint(20000, 32000)
        steps = max(20, min(500000, int(seconds * 1e9 / (size * 0.1 + 500))))
        out = run_with_server(
            ["ucx_perftest", "-p", port],
            ["ucx_perftest", "127.0.0.1", "-p", port, "-t", self.test, "-s", size, "-v"]
            + ["-n", steps, "-w", max(5, steps // 20)],
            env={"UCX_TLS": f"{tls},self"},
        )
        return ucx_us(out)


def ucx_us(text):
    """Of -v's two lines, a head and the numbers: the median of a message's time. (The mean of a bandwidth
    test is not it, as one pause of the machine's counts for all.)"""
    lines = [line for line in text.splitlines() if "," in line]
    if len(lines) < 2 or "50.0_percentile_lat" not in lines[0]:
        raise NotRun("ucx_perftest printed no figures")
    values = dict(zip(lines[0].split(","), lines[-1].split(",")))
    return float(values["50.0_percentile_lat"])


class Mpi(Subject):
    group = "mpi"

    def cases(self, size):
        return update_cases(self.name, size, (2,))

    def sample(self, case, seconds):
        if not shutil.which("mpirun"):
            raise NotRun("mpirun is not there (Debian's package openmpi-bin)")
        program = PROGRAMS / "compare_mpi"
        if not program.exists():
            raise NotRun("compare_mpi was not built (Debian's package libopenmpi-dev)")
        found = run_json(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
            + ["--mca", "pml", "ob1", "--mca", "btl", "vader,self"]
            + [program, case.size, case.optimizer, int(seconds * 1000)]
        )
        way = min(("in_place", "apart"), key=lambda w: found[f"{w}_us"])
        return Sample(found[f"{way}_us"], more={"way": way, "p99_us": found[f"{way}_p99_us"]})


class Gloo(Subject):
    group = "gloo"

    def cases(self, size):
        return update_cases(self.name, size, (2,))

    def sample(self, case, seconds):
        program = Path(__file__).with_name("gloo_step.py")
        args = ["/usr/bin/python3", program, case.size, case.optimizer, int(seconds * 1000)]
        found = run_json(args, env=HUGE_PAGES)
        return Sample(found["p50_us"], more={"p99_us": found["p99_us"]})


class Grpc(Subject):
    group = "grpc"

    def cases(self, size):
        return [Case(self.name, size, "sgd", 1)]

    def sample(self, case, seconds):
        program = PROGRAMS / "compare_grpc"
        if not program.exists():
            raise NotRun("compare_grpc was not built (Debian's packages libgrpc++-dev, protobuf-compiler-grpc)")
        both = {}
        for way in ("unix", "tcp"):
            both[way] = run_json([program, way, case.size, int(seconds * 500)], env=HUGE_PAGES)
        way = min(both, key=lambda w: both[w]["p50_us"])
        return Sample(both[way]["p50_us"], more={"way": way, "p99_us": both[way]["p99_us"]})


# Latencies first, as they stand together in the must-show lines.
SUBJECTS = [
    Exchange("exchange", "bare exchange, spinning"),
    Steps("spin", "gradslot, spinning, pulled", ["--spin", "forever", "--workers", "0"], (1,), 1 << 20),
    Wake("wake", "eventfd round trip"),
    Steps("sleep", "gradslot, sleeping, pulled", ["--spin", "0"], (1,), 4 << 10),
    Kernels("kernels", "memcpy"),
    Floor("floor", "memory floor"),
    Steps("view", "gradslot, zero-copy, read in place", ["--view"]),
    Steps("pull", "gradslot, zero-copy, pulled", []),
    Steps("copy", "gradslot, with copies", ["--copy"]),
    Ucx("ucx_lat", "UCX put, one way, tells nobody", "ucp_put_lat"),
    Ucx("ucx_bw", "UCX put, many at once, tells nobody", "ucp_put_bw"),
    Mpi("mpi", "OpenMPI Allreduce + step"),
    Gloo("gloo", "PyTorch gloo all_reduce + step"),
    Grpc("grpc", "gRPC there and back, no update"),
]

GROUPS = sorted({s.group for s in SUBJECTS})
