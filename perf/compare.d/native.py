# SPDX-License-Identifier: Apache-2.0
"""Native measurements: for each size, round after round, every subject takes one sample. Every second
round goes the other way round, so that nobody is always first after the same neighbour."""
import extras
from command import NotRun, progress, run_json
from figures import Case, Samples, size_text
from lines import native_lines
from report import plot, print_tables
from subjects import REFERENCE, SUBJECTS

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
QUICK_SIZES = [4 << 10, 1 << 20, 64 << 20]
EXTRAS = ("scale", "idle", "cost")
SHOWN = [(s.name, s.shown, "us") for s in SUBJECTS]


def probe():
    try:
        return run_json([REFERENCE, "probe"]).get("ns")
    except NotRun:
        return None


def wanted(options):
    """Cases by size, of the subjects that --only names."""
    chosen = [s for s in SUBJECTS if not options.only or s.group in options.only or s.name in options.only]
    cases = {}
    for size in options.sizes or (QUICK_SIZES if options.quick else SIZES):
        cases[size] = [(s, c) for s in chosen for c in s.cases(size) if keep(c, options)]
    return cases


def keep(case, options):
    if options.optimizers and case.optimizer and case.optimizer not in options.optimizers:
        return False
    return not options.trainers or not case.trainers or case.trainers in options.trainers


def case_text(case):
    parts = [case.subject, size_text(case.size)] if case.size else [case.subject]
    parts += [case.optimizer] if case.optimizer else []
    parts += [f"{case.trainers} trainer{'s' * (case.trainers > 1)}"] if case.trainers else []
    return " ".join(parts)


def measure_size(size, cases, options, samples, not_run):
    for number in range(options.rounds):
        order = cases if number % 2 == 0 else list(reversed(cases))
        for at, (subject, case) in enumerate(order):
            if case in not_run:
                continue
            progress(
                f"{size_text(size)}, round {number + 1} of {options.rounds}: "
                f"{at + 1} of {len(order)}, {subject.shown}"
            )
            before = probe()
            try:
                sample = subject.sample(case, options.seconds)
                sample.probes = (before, probe())
                samples.add(case, number, sample)
            except (NotRun, KeyError, ValueError) as why:
                not_run[case] = str(why) or repr(why)
    progress("")


def measure_extras(options):
    found, not_run = {}, {}
    how = {
        "scale": lambda: extras.scale(2 if options.quick else 5, 50 if options.quick else 200),
        "idle": lambda: extras.idle(3 if options.quick else 10),
        "cost": extras.cost,
    }
    for name in EXTRAS:
        if options.only and name not in options.only:
            continue
        if name == "cost" and options.quick and not options.only:
            not_run[name] = "left out by --quick, as callgrind takes minutes: --only cost"
            continue
        progress(name)
        try:
            found[name] = how[name]()
        except (NotRun, OSError) as why:
            not_run[name] = str(why)
    progress("")
    return found, not_run


def measure(options):
    samples, not_run = Samples(), {}
    for size, cases in wanted(options).items():
        measure_size(size, cases, options, samples, not_run)
    found, extras_not_run = measure_extras(options)
    sizes = sorted({c.size for c in samples.by_case if c.subject in ("grpc", "copy", "spin")})
    return {
        "mode": "native",
        "samples": samples,
        "extras": found,
        "not_run": {**{case_text(c): why for c, why in not_run.items()}, **extras_not_run},
        "lines": list(native_lines(samples, sizes, found, extras_not_run)),
    }


def show(result):
    print_tables(result["samples"], SHOWN, Case("pull"))


def plots(result, out):
    made = []
    for trainers in (1, 2):
        svg = out / f"step-{trainers}.svg"

        def pick(case, trainers=trainers):
            return case.subject != "kernels" and case.optimizer in ("", "sgd") and case.trainers in (0, trainers)

        title = f"A step of sgd with {trainers} trainer{'s' * (trainers > 1)}, over shared memory"
        if plot(result["samples"], SHOWN, pick, title, svg):
            made.append(svg)
    return made
