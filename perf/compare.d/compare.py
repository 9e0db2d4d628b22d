#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The part of perf/compare that measures, once everything is installed and built."""
import argparse
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

import guest  # noqa: E402
import native  # noqa: E402
import report  # noqa: E402
from command import NotRun  # noqa: E402
from figures import parse_size  # noqa: E402
from subjects import GROUPS, TOP  # noqa: E402

MODES = {"native": native, "guest": guest}


def size_list(text):
    try:
        return [parse_size(t) for t in text.split(",")]
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from None


def names(*allowed):
    def parse(text):
        chosen = text.split(",")
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name}: there is {', '.join(allowed)}")
        return chosen

    return parse


def positive(kind):
    def parse(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text}: must be more than 0")
        return value

    return parse


def parse(argv):
    p = argparse.ArgumentParser(
        prog="perf/compare",
        description="Measures gradslot and what would be used instead, by turns, in one run on this machine; "
        "prints tables and what gradslot must show, and writes JSON and plots. perf/METHOD.md says how.",
        epilog="Also: --no-build (neither install nor build), which must come first.",
    )
    everything = [*GROUPS, *(s.name for s in native.SUBJECTS), *native.EXTRAS, *guest.TESTS]
    p.add_argument("mode", nargs="?", choices=list(MODES), help="unset: both")
    p.add_argument("--quick", action="store_true", help="fewer sizes and rounds, shorter samples")
    p.add_argument("--only", type=names(*dict.fromkeys(everything)), default=[], metavar="NAME,...",
                   help=f"some of: {', '.join(dict.fromkeys(everything))}")  # fmt: skip
    p.add_argument("--sizes", type=size_list, default=[], metavar="SIZE,...", help="as 4K,64M")
    p.add_argument("--optimizers", type=names("sgd", "adam"), default=[], metavar="NAME,...")
    p.add_argument("--trainers", type=lambda t: [int(n) for n in names("1", "2")(t)], default=[], metavar="N,...")
    p.add_argument("--rounds", type=positive(int), help="samples of each (default 5; --quick: 3)")
    p.add_argument("--seconds", type=positive(float), help="of one sample (default 1; --quick: 0.3)")
    p.add_argument("--device", choices=("rxe", "siw"), default="rxe", help="the guest's")
    p.add_argument("--out", type=Path, default=TOP / "build" / "compare", help="folder for JSON and plots")
    options = p.parse_args(argv)
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.3 if options.quick else 1)
    return options


def run_mode(name, options):
    mode = MODES[name]
    began = time.time()
    result = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began)),
        "machine": report.machine(),
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()},
        **mode.measure(options),
    }
    result["took_s"] = round(time.time() - began)
    m = result["machine"]
    print(f"\n{name}: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}; "
          f"load at the start {m['load_1m']:.2f}; {options.rounds} rounds; {result['took_s']} s")  # fmt: skip
    try:
        made = mode.plots(result, options.out)
    except NotRun as why:
        made = []
        result["not_run"]["plots"] = str(why)
    path = options.out / f"{name}.json"
    report.write_json(result, path)
    mode.show(result)
    partly = options.only or options.sizes or options.optimizers or options.trainers
    report.print_lines(result["lines"], bool(partly))
    report.print_not_run(result["not_run"])
    print("\n" + "\n".join(str(p) for p in [path, *made]))


def main():
    options = parse(sys.argv[1:])
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [options.mode] if options.mode else MODES:
        run_mode(name, options)


if __name__ == "__main__":
    main()
