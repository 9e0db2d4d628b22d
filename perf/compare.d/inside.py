#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""inside.py OPTIONS-AS-JSON: what perf/compare runs in the guest. For each size, round after round, each
test of perftest and of gradslot in turn; writes one JSON object a line to $GUEST_SHARE/samples."""
import json
import os
import sys
import time

sys.dont_write_bytecode = True

import perftest  # noqa: E402
from command import NotRun, end, run, run_json, start  # noqa: E402
from subjects import GRADSLOT, REFERENCE  # noqa: E402

PORT = 18700
# What comes back when a gradient has been applied: a credit.
SMALL = 8
# Blocks, by default (server/geometry.h): only the last one's update comes behind the wire's time.
LONGEST_BLOCK, LEAST_BLOCK, PAGE = 256 << 10, 32 << 10, 4096
# perftest polls, so gradslot does.
POLLING = ["--spin", "forever", "--workers", "0"]


def wait_for_listener(port, seconds):
    wanted = f":{port:04X}"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as rows:
                for row in rows:
                    fields = row.split()
                    if len(fields) > 3 and fields[1].endswith(wanted) and fields[3] == "0A":
                        return
        time.sleep(0.02)
    raise NotRun(f"nobody listens at port {port} after {seconds} s")


def perftest_pair(test, size, iters, more=()):
    """The client's output."""
    global PORT
    PORT += 1  # the last one's connection may linger
    program = f"ib_{test}"
    args = [program, "-d", os.environ["RDMA_DEV"], "-F", "-p", PORT, "-s", size, "-n", iters, *more]
    if os.environ["RDMA_KIND"] == "siw":
        args.append("-R")
    null = open(os.devnull, "w")
    server = start(args, stdout=null, stderr=null, stdin=null)
    try:
        wait_for_listener(PORT, 10)
        return run([*args, os.environ["RDMA_ADDR"]], timeout=60)
    finally:
        end(server)
        null.close()


def again(measure):
    """perftest now and then gives no figures, when it could not tell the clock's rate."""
    for attempt in range(3):
        try:
            return measure()
        except NotRun as why:
            reason = why
    raise reason


def write_lat(o, size):
    iters = count(o, size, 5e6, 10, 500)
    us, p99 = again(lambda: perftest.latency_us(perftest_pair("write_lat", size, iters), size))
    return {"us": us, "p99_us": p99}


def bandwidth(test):
    def measure(o, size):
        iters = count(o, size, 40e6, 2 * o["depth"], 5000)
        depth = ["-t", o["depth"]]
        rate = again(lambda: perftest.bandwidth(perftest_pair(test, size, iters, depth), size))
        return {"us": size / rate * 1e6, "mb_per_s": rate / 1e6}

    return measure


def count(o, size, bytes_per_s, least, most):
    return int(max(least, min(most, o["seconds"] * bytes_per_s / size)))


def bench(o, what, size, iters, more):
    """The one point of gradslot's benchmark."""
    args = ["--transport", "rdma", "--size", size, "--json"]
    args += ["--rounds", "1", "--duration", "0", "--iters", iters, *POLLING]
    found = run_json([GRADSLOT, "bench", what, *args, *more], timeout=60)
    points = found.get("points", [])
    if len(points) != 1:
        raise NotRun(f"gradslot bench {what} gave {len(points)} points instead of one")
    return points[0]


def until_applied(read):
    """Until the trainer knows that its gradient was applied: there and back."""

    def measure(o, size):
        iters = count(o, size, 5e6, 10, 500)
        us = bench(o, "latency", size, iters, ["--read", read])["us"]["applied"]
        return {"us": us["p50"], "p99_us": us["p99"]}

    return measure


def last_block(size):
    quarter = -(-size // 4 // PAGE) * PAGE
    block = min(LONGEST_BLOCK, max(LEAST_BLOCK, quarter))
    return size % block or block


def update(o, size):
    """What the last block's takes alone."""
    return {"us": run_json([REFERENCE, "floor", last_block(size), "sgd", 1, 30, 1])["update_us"]}


def push(o, size):
    iters = count(o, size, 40e6, 2 * o["depth"], 5000)
    rate = bench(o, "push", size, iters, ["--depth", o["depth"]])["gb_per_s"] * 1e9
    return {"us": size / rate * 1e6, "mb_per_s": rate / 1e6}


def pull(o, size):
    """As many parameters at once as perftest has reads under way. perftest's memory is registered before its
    clock runs; here the first pulls do it."""
    iters = count(o, size * o["depth"], 40e6, 3, 1000)
    more = ["--params", o["depth"], "--many", "--warmup", max(8, min(100, iters))]
    rate = bench(o, "pull", size, iters, more)["gb_per_s"] * 1e9
    return {"us": size / rate * 1e6, "mb_per_s": rate / 1e6}


TESTS = {
    "write_lat": write_lat,
    "latency": until_applied("none"),
    "update": update,
    "pulled": until_applied("relaxed"),
    "write_bw": bandwidth("write_bw"),
    "push": push,
    "read_bw": bandwidth("read_bw"),
    "pull": pull,
}


def main():
    o = json.loads(sys.argv[1])
    failed = set()
    with open(os.path.join(os.environ["GUEST_SHARE"], "samples"), "w") as out:

        def measure(test, size, number):
            if (test, size) in failed:
                return
            row = {"subject": test, "size": size, "round": number}
            try:
                row.update(TESTS[test](o, size))
            except (NotRun, KeyError, ValueError, ZeroDivisionError) as why:
                failed.add((test, size))
                row["not_run"] = str(why) or repr(why)
            print(json.dumps(row), file=out, flush=True)
            print(f"{test} {size} {number}: {row.get('us') or row['not_run']}", flush=True)

        for size in o["sizes"]:
            for number in range(o["rounds"]):
                tests = o["tests"] if number % 2 == 0 else o["tests"][::-1]
                for test in tests:
                    measure(test, size, number)
                    if test == "write_lat":
                        measure_small(measure, size, number)


def measure_small(measure, size, number):
    """The way back, in the same round: filed under its size and the other's."""
    if size != SMALL:
        measure("write_lat", SMALL, f"{size}/{number}")


if __name__ == "__main__":
    main()
