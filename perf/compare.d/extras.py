# SPDX-License-Identifier: Apache-2.0
"""What is measured once in a run, beside the steps: many small parameters, an idle server, instructions."""
import os
import re
import subprocess
import time
from pathlib import Path

from command import NotRun, end, last_line, run, start
from subjects import BUILD, GRADSLOT, MINE, TOP

SCALE_MANY, SCALE_ELEMS = 10000, 256


def scale(rounds, steps):
    """How many times a step of one parameter goes into one of 10,000 with as many bytes together."""
    program = BUILD / "perf" / "perf_many"
    if not program.exists():
        raise NotRun("perf_many is not built here")
    out = run(
        [program, "--params", SCALE_MANY, "--elems", SCALE_ELEMS, "--rounds", rounds, "--steps", steps],
        timeout=300,
    )
    return scale_ratio(out)


def scale_ratio(text):
    found = re.search(r"^ratio ([0-9.]+)$", text, re.MULTILINE)
    if not found:
        raise NotRun(f"perf_many printed no ratio: {last_line(text)}")
    return float(found.group(1))


def cpu_ns(pid):
    """What all threads of a process have used. By the scheduler's own count if it keeps one: ticks miss
    what runs for less than one."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total
    except (OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")


def wait_for_line(process, beginning, seconds):
    """The next line of its stdout, which must begin so."""
    import select

    if not select.select([process.stdout], [], [], seconds)[0]:
        raise NotRun(f"no '{beginning}' within {seconds} s")
    line = process.stdout.readline()
    if not line.startswith(beginning):
        raise NotRun(f"'{line.strip()}' instead of '{beginning}'")


def idle(seconds):
    """The share of a core, in percent, that a server with one connected, silent trainer uses."""
    program = MINE / "perf_idle"
    if not program.exists():
        raise NotRun("perf_idle is not built here")
    uri = f"shm:compare-idle-{os.getpid()}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "stdin": subprocess.PIPE}
    server = start([GRADSLOT, "serve", "--listen", uri, "--trainers", "1"], **pipes)
    trainer = None
    try:
        wait_for_line(server, "READY", 10)
        trainer = start([program, uri], **pipes)
        wait_for_line(trainer, "idle", 10)
        time.sleep(0.5)
        used, began = cpu_ns(server.pid), time.monotonic_ns()
        time.sleep(seconds)
        used, took = cpu_ns(server.pid) - used, time.monotonic_ns() - began
        return 100 * used / took
    finally:
        for process in filter(None, (trainer, server)):
            end(process)
            process.stdin.close()
            process.stdout.close()


def cost():
    """The rows of perf/cost: [{mode, trainers, blocks, instructions, growth, budget, over}]."""
    program = TOP / "perf" / "cost"
    if not program.exists():
        raise NotRun("perf/cost is not there")
    process = start(
        [program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=TOP
    )
    try:
        out, err = process.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        raise NotRun("perf/cost took longer than 900 s") from None
    finally:
        end(process)
    rows = cost_rows(out)
    if process.returncode not in (0, 1) or not rows:
        raise NotRun(f"perf/cost ended with {process.returncode}: {last_line(err or out)}")
    return rows


def cost_rows(text):
    rows = []
    for line in text.splitlines():
        found = re.match(r"(\w+) +(\d+) +(\d+) +(\d+) +(\d+) +(-?\d+)% +(\d+)(?: +(OVER))? *$", line)
        if found:
            mode, *numbers = found.groups()[:7]
            names = ("trainers", "active", "blocks", "instructions", "growth_percent", "budget")
            rows.append({"mode": mode, **dict(zip(names, map(int, numbers))), "over": bool(found.group(8))})
    return rows
