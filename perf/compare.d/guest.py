# SPDX-License-Identifier: Apache-2.0
"""Measurements over Soft-RoCE: one guest, in which perftest and gradslot take turns (inside.py)."""
import json
import subprocess
import tempfile
from pathlib import Path

from command import NotRun, end, last_line, progress, run_json, start
from figures import Case, Sample, Samples, size_text
from lines import guest_lines
from report import plot, print_tables
from subjects import REFERENCE, TOP

SIZES = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
QUICK_SIZES = [4 << 10, 64 << 10, 1 << 20]
DEPTH = 8
SMALL = 8
TESTS = ("write_lat", "latency", "update", "pulled", "write_bw", "push", "read_bw", "pull")
# What is compared with one another stands together.
SHOWN = [
    ("write_lat", "ib_write_lat, one way", "us"),
    ("there_and_back", "ib_write_lat, there and 8 bytes back", "us"),
    ("latency", "gradslot push until applied", "us"),
    ("update", "of it the update of the last block", "us"),
    ("without_update", "the same without", "us"),
    ("pulled", "gradslot push until applied, weights pulled in between", "us"),
    ("write_bw", "ib_write_bw, a message", "us"),
    ("push", "gradslot push, a gradient", "us"),
    ("read_bw", "ib_read_bw, a message", "us"),
    ("pull", "gradslot pull, a parameter", "us"),
]


# The emulator executes `rep movsb` byte by byte, 16 times slower than glibc's loops of vectors.
NO_REP_MOVSB = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000"


def like_a_machine():
    """What a guest is to be told so that an emulator's slow corners are not what is measured: clocks and
    copies. perftest reads the time stamp counter by itself, and copies nothing."""
    options = ["--env", NO_REP_MOVSB]
    khz = run_json([REFERENCE, "tsc"]).get("khz")
    with open("/proc/cpuinfo") as info:
        steady = " nonstop_tsc" in info.read()
    return [*options, "--tsc", int(khz)] if khz and steady else options


def run_guest(options, inside, timeout):
    """The rows that it wrote, and why it did not write all."""
    with tempfile.TemporaryDirectory(prefix="gradslot-compare-", dir="/var/tmp") as share:
        command = [TOP / "tests/softroce/run", "--device", options.device, "--share", share, "--timeout", timeout]
        command += ["--env", f"COMPARE_BUILD={inside.pop('build')}", *like_a_machine()]
        command += ["--", "/usr/bin/python3", Path(__file__).with_name("inside.py"), json.dumps(inside)]
        guest = start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        said = []
        try:
            for line in guest.stdout:
                said.append(line)
                progress(f"guest: {line.strip()}")
            status = guest.wait()
        finally:
            end(guest)
        progress("")
        why = f"the guest ended with {status}: {last_line(''.join(said[-5:]))}" if status else ""
        rows = []
        samples = Path(share) / "samples"
        if samples.exists():
            for line in samples.read_text().splitlines():
                rows.append(json.loads(line))
    return rows, why


def file_rows(rows):
    """Samples, and what was not run. The way back, which each round has for each size, is added up."""
    samples, not_run, back = Samples(), {}, {}
    for row in rows:
        name = f"{row['subject']} {size_text(row['size'])}"
        if "not_run" in row:
            not_run[name] = row["not_run"]
        elif row["size"] == SMALL and isinstance(row["round"], str):
            back[row["round"]] = row["us"]
        else:
            more = {k: row[k] for k in ("p99_us", "mb_per_s") if k in row}
            samples.add(Case(row["subject"], row["size"]), row["round"], Sample(row["us"], more=more))
    for case, by_round in list(samples.by_case.items()):
        if case.subject != "write_lat":
            continue
        for number, sample in by_round.items():
            if f"{case.size}/{number}" in back:
                both = Sample(sample.us + back[f"{case.size}/{number}"])
                samples.add(Case("there_and_back", case.size), number, both)
    take_off_updates(samples)
    return samples, not_run


def take_off_updates(samples):
    """Of each round's latency the update that was measured in it."""
    for case in [c for c in samples.by_case if c.subject == "latency"]:
        updates = samples.of(Case("update", case.size))
        for number, sample in samples.of(case).items():
            if number in updates and updates[number].us < sample.us:
                without = Sample(sample.us - updates[number].us)
                samples.add(Case("without_update", case.size), number, without)


def measure(options):
    import os

    from subjects import BUILD

    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    tests = [t for t in TESTS if not options.only or t in options.only]
    inside = {"sizes": sizes, "tests": tests, "rounds": options.rounds, "depth": DEPTH}
    inside |= {"seconds": options.seconds, "build": os.fspath(BUILD)}
    each = 4 * options.seconds + 10  # with starting and connecting, on an emulated CPU
    timeout = int(60 + len(sizes) * len(tests) * options.rounds * each)
    try:
        rows, why = run_guest(options, inside, timeout)
    except NotRun as reason:
        rows, why = [], str(reason)
    samples, not_run = file_rows(rows)
    if why:
        not_run["guest"] = why
    return {
        "mode": "guest",
        "device": options.device,
        "depth": DEPTH,
        "samples": samples,
        "not_run": not_run,
        "lines": list(guest_lines(samples, sizes)),
    }


def show(result):
    print(f"\nOver {result['device']} in an emulated guest, {result['depth']} under way: only ratios mean anything")
    print_tables(result["samples"], SHOWN, Case("write_lat"))


def plots(result, out):
    made = []
    latencies = ("there_and_back", "latency")
    if plot(
        result["samples"], SHOWN, lambda c: c.subject in latencies,
        "A message there, a small one back", out / "guest-latency.svg",
    ):  # fmt: skip
        made.append(out / "guest-latency.svg")
    if plot(
        result["samples"], SHOWN, lambda c: c.subject in ("write_bw", "push", "read_bw", "pull"),
        "Bandwidth", out / "guest-bandwidth.svg", lambda us, size: size / us, "10^6 bytes a second",
    ):  # fmt: skip
        made.append(out / "guest-bandwidth.svg")
    return made
