# SPDX-License-Identifier: Apache-2.0
"""A run's figures as a table, as JSON and as plots."""
import dataclasses
import json
import os
import platform
import shutil
from pathlib import Path

from command import NotRun, run
from figures import size_text


def machine():
    """What the figures depend on and nobody can tell from them."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "load_1m": os.getloadavg()[0],
    }


# ---- the table ------------------------------------------------------------------------------------


def number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def figure_notes(figure):
    notes = []
    if figure.left_out:
        notes.append(f"left out, as the probe moved: {figure.left_out}")
    if figure.unsteady:
        notes.append("the probe moved in every round")
    return notes


def table(rows, head):
    """Lines of columns; the first is text, the last too, the others are numbers."""
    width = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(width[0])]
        cells += [c.rjust(w) for c, w in zip(row[1:-1], width[1:-1])]
        yield "  ".join([*cells, row[-1]]).rstrip()


def section_rows(samples, subjects, size, optimizer, trainers, base):
    """What was measured with these, and what goes with any optimizer or number of trainers."""
    base_figure = samples.figure(base)
    for name, shown, unit in subjects:
        for case in samples.by_case:
            if case.subject != name or case.size != size:
                continue
            if case.optimizer not in ("", optimizer) or case.trainers not in (0, trainers):
                continue
            f = samples.figure(case)
            times = f"{f.median / base_figure.median:.2f}" if base_figure else ""
            spread = f"{number(f.least)} - {number(f.most)}"
            notes = figure_notes(f) + extra_notes(samples, case)
            yield [shown, number(f.median), spread, str(f.rounds), times, "; ".join(notes)]


def extra_notes(samples, case):
    """Figures that were taken along."""
    from figures import median

    rows = list(samples.of(case).values())
    shown = {
        "triad_gb_per_s": "triad {} GB/s",
        "memcpy_gb_per_s": "memcpy {} GB/s",
        "sgd_gb_per_s": "sgd {} GB/s",
        "adam_gb_per_s": "adam {} GB/s",
        "view_us": "read in place {}",
        "copy_us": "with copies {}",
        "apart_us": "between two cores {}",
        "mb_per_s": "{} MB/s",
    }
    notes = []
    for key, text in shown.items():
        values = [s.more[key] for s in rows if key in s.more]
        if values:
            notes.append(text.format(number(median(values))))
    ways = sorted({str(s.more[k]) for s in rows for k in ("way", "tls") if k in s.more})
    if ways:
        notes.append("/".join(ways))
    return notes


def print_tables(samples, subjects, base):
    """A table for each size, optimizer and number of trainers; `base` names what is 1 in the last column."""
    keys = sorted({(c.size, c.optimizer, c.trainers) for c in samples.by_case}, key=sort_key)
    named = [k for k in keys if k[1]] or keys
    for size, optimizer, trainers in named:
        title = size_text(size)
        if optimizer:
            title += f", {optimizer}, {trainers} trainer{'s' * (trainers > 1)}"
        print(f"\n{title}")
        case = dataclasses.replace(base, size=size, optimizer=optimizer, trainers=trainers)
        rows = list(section_rows(samples, subjects, size, optimizer, trainers, case))
        for line in table(rows, ["", "us, median", "spread", "rounds", f"/ {base.subject}", ""]):
            print(f"  {line}")


def sort_key(key):
    size, optimizer, trainers = key
    return (optimizer == "adam", size, trainers)


def print_lines(lines, partly):
    """partly: only some was to be measured, and lines of the rest need not be listed."""
    print("\nWhat it must show")
    rows = []
    for line in lines:
        if partly and not line.figure and line.note.startswith(("no figure of", "not asked for")):
            continue
        value = limit = ""
        notes = [line.note] if line.note else []
        if line.figure:
            f = line.figure
            value = f"{number(f.median)} {line.unit}".rstrip()
            limit = f"{'<=' if line.sense == 'at most' else '>='} {number(line.limit)}"
            if f.rounds > 1:
                notes.insert(0, f"{number(f.least)} - {number(f.most)}")
            notes += figure_notes(f)
        rows.append([line.text, value, limit, line.verdict(), "; ".join(notes)])
    for text in table(rows, ["", "median", "limit", "", "spread, notes"]):
        print(f"  {text}")
    good = sum(1 for line in lines if line.holds())
    bad = sum(1 for line in lines if line.holds() is False)
    print(f"\n{good} hold, {bad} fall short, {len(lines) - good - bad} not judged")


def print_not_run(not_run):
    if not_run:
        print("\nNot run")
    for what, why in not_run.items():
        print(f"  {what}: {why}")


# ---- JSON -----------------------------------------------------------------------------------------


def as_json(result):
    samples, lines = result["samples"], result["lines"]
    return {
        **{k: v for k, v in result.items() if k not in ("samples", "lines")},
        "figures": [
            {
                **dataclasses.asdict(case),
                **dataclasses.asdict(samples.figure(case)),
                "samples": {str(r): dataclasses.asdict(s) for r, s in sorted(by_round.items())},
            }
            for case, by_round in samples.by_case.items()
        ],
        "must_show": [
            {**dataclasses.asdict(line), "holds": line.holds(), "short_by_percent": line.short_by()}
            for line in lines
        ],
    }


def write_json(result, path):
    path.write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n")


# ---- plots ----------------------------------------------------------------------------------------

PLOT = """set terminal svg size 900,600 background rgb "white"
set output "{svg}"
set title "{title}"
set logscale xy
set xlabel "{xlabel}"
set ylabel "{ylabel}"
set key outside right
set grid
set format x "%.0b%BB"
plot {curves}
"""


def plot(samples, shown, pick, title, svg, value=lambda f, size: f, ylabel="microseconds (median, least to most)"):
    """Curves over the size. pick(case): it belongs into this plot. False: there is nothing to plot."""
    curves = []
    for name, text, _ in shown:
        rows = [
            (c.size, samples.figure(c)) for c in samples.by_case if c.subject == name and pick(c)
        ]
        if not rows:
            continue
        data = svg.with_name(f"{svg.stem}-{name}.dat")
        with data.open("w") as out:
            print("# size median least most", file=out)
            for size, f in sorted(rows, key=lambda row: row[0]):
                ends = sorted((value(f.least, size), value(f.most, size)))
                print(size, value(f.median, size), *ends, file=out)
        curves.append(f'"{data}" using 1:2:3:4 with yerrorlines title "{text}"')
    if not curves:
        return False
    script = svg.with_suffix(".gnuplot")
    script.write_text(
        PLOT.format(svg=svg, title=title, xlabel="bytes", ylabel=ylabel, curves=", \\\n  ".join(curves))
    )
    if not shutil.which("gnuplot"):
        raise NotRun("gnuplot is not there (Debian's package gnuplot-nox)")
    run(["gnuplot", script])
    return True
