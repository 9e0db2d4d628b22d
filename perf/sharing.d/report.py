# SPDX-License-Identifier: Apache-2.0
"""What perf_sharing saw, for people: which lines moved from core to core for nothing, which had to.

  falsely shared  who made it move found nothing new, and is after bytes that nobody else writes
  side by side    found nothing new that time: what else is handed over lies in the same line (entries of
                  a ring, words of neighbouring blocks), or it was taken away first
  truly shared    found what somebody wrote

Usage: report.py PROGRAM [--all] [--limit N] < what it printed

--limit N: exit status 1 if falsely shared lines moved more than N times a step.
"""
import argparse
import subprocess
import sys
from collections import defaultdict

SELDOM = 0.02  # moves a step: less is what steps have now and then (a ring's end, a thread's turn)


class Line:
    def __init__(self):
        self.object, self.uses = None, []


class Use:
    def __init__(self, needed, useless, written, entry, name):
        self.needed, self.useless, self.written = int(needed), int(useless), int(written, 0)
        self.entry, self.name = int(entry, 0), name.strip()
        self.places = []  # (pc, bytes read, bytes written, times)


def parse(stream):
    steps, lines = 0, []
    for text in stream:
        kind, _, rest = text.rstrip("\n").partition(" ")
        if kind == "steps":
            steps = int(rest)
        elif kind == "line":
            lines.append(Line())
        elif kind in ("file", "heap", "other"):
            lines[-1].object = (kind, rest.split(maxsplit=2))
        elif kind == "use":
            lines[-1].uses.append(Use(*(rest.split(" ", 4))))
        elif kind == "place":
            lines[-1].uses[-1].places.append(tuple(int(word, 0) for word in rest.split()))
    return steps, lines


# ---- from addresses to the source ------------------------------------------------------------------


class Names:
    """Functions and lines of the program, all asked for at once."""

    def __init__(self, program, lines):
        calls, entries = set(), set()
        for line in lines:
            if line.object[0] == "heap":
                calls.add(int(line.object[1][0], 0))
            for use in line.uses:
                entries.add(use.entry)
                calls.update(place[0] for place in use.places)
        self.names = {}
        # What is known of a call is where it returns to.
        self.ask(program, {pc: pc - 1 for pc in calls})
        self.ask(program, {pc: pc for pc in entries - {0}})

    def ask(self, program, addresses):
        keys = list(addresses)
        out = subprocess.run(
            ["addr2line", "-a", "-f", "-i", "-s", "-e", program],
            input="\n".join(hex(addresses[k]) for k in keys),
            capture_output=True, text=True, check=True).stdout.split("\n")
        at = -1
        frames = defaultdict(list)
        for text in out:
            if text.startswith("0x"):
                at += 1
            elif text:
                frames[keys[at]].append(text)
        for key, found in frames.items():
            place = found[1].split(" ")[0]
            outer = found[-2]
            self.names[key] = f"{place} {found[0]}" + (f" in {outer}" if outer != found[0] else "")

    def place(self, pc):
        return self.names.get(pc, hex(pc))

    def thread(self, use):
        if use.name:
            return use.name
        return self.names[use.entry].split(" ")[1] if use.entry else "main"


def object_name(line, names):
    """What it is part of, and where in it."""
    kind, words = line.object
    if kind == "file":
        return words[2].replace("(deleted)", "").replace("/memfd:gradslot", "").strip(" -"), int(words[1])
    if kind == "heap":
        return f"{words[2]} bytes from {names.place(int(words[0], 0))}", int(words[1])
    return "static or stack", int(words[0], 0)


def byte_ranges(mask):
    ranges, begin = [], None
    for i in range(65):
        if i < 64 and mask >> i & 1:
            begin = i if begin is None else begin
        elif begin is not None:
            ranges.append(f"{begin}..{i - 1}" if i - 1 > begin else str(begin))
            begin = None
    return ",".join(ranges)


# ---- groups: lines of one object that the same code touches the same way ----------------------------


def apart(line, use):
    """Mostly it is after bytes of the line that nobody else writes, ever."""
    others = 0
    for other in line.uses:
        others |= other.written if other is not use else 0
    count = {True: 0, False: 0}
    for _, read, wrote, n in use.places:
        count[bool((read | wrote) & others)] += n
    return count[False] > count[True]


class Group:
    def __init__(self, name):
        self.name, self.offsets, self.lines = name, [], []
        self.needed = self.false = self.beside = 0

    def add(self, line, offset):
        self.offsets.append(offset)
        self.lines.append(line)
        for use in line.uses:
            self.needed += use.needed
            if apart(line, use):
                self.false += use.useless
            else:
                self.beside += use.useless


def grouped(lines, names):
    groups = {}
    for line in lines:
        name, offset = object_name(line, names)
        whose = tuple(sorted(
            (names.thread(use), use.needed > 0, use.useless > 0,
             frozenset(pc for pc, _, _, _ in use.places)) for use in line.uses))
        group = groups.setdefault((name, str(whose)), Group(name))
        group.add(line, offset)
    return list(groups.values())


def where(group):
    first = min(group.offsets)
    more = f" and {len(group.offsets) - 1} more" if len(group.offsets) > 1 else ""
    return f"{group.name}, at {first}{more}"


def show_sides(group, steps, names):
    """Who does what, of the first of the lines."""
    line = group.lines[group.offsets.index(min(group.offsets))]
    for use in line.uses:
        print(f"      {names.thread(use)}: {use.needed / steps:.2f} needed, {use.useless / steps:.2f} useless")
        for pc, read, written, n in sorted(use.places, key=lambda place: -place[3]):
            what = [f"{verb} {byte_ranges(mask)}" for verb, mask in (("reads", read), ("writes", written)) if mask]
            print(f"        {', '.join(what):<28} {n / steps:8.1f}  {names.place(pc)}")


def show(title, groups, count, steps, names, sides):
    print(f"  {title}, moves a step: {sum(count(g) for g in groups) / steps:.2f}")
    for group in sorted(groups, key=count, reverse=True):
        if count(group) / steps < SELDOM:
            continue
        print(f"    {count(group) / steps:7.2f}  {where(group)}")
        if sides:
            show_sides(group, steps, names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true", help="both sides of lines that had to move, too")
    parser.add_argument("--limit", type=float, help="most moves of falsely shared lines a step")
    args = parser.parse_args()
    steps, lines = parse(sys.stdin)
    if not steps or not lines:
        sys.exit("report.py: nothing was seen")
    names = Names(args.program, lines)
    groups = grouped(lines, names)
    show("falsely shared", groups, lambda g: g.false, steps, names, True)
    show("side by side", groups, lambda g: g.beside, steps, names, args.all)
    show("truly shared", groups, lambda g: g.needed, steps, names, args.all)
    false = sum(g.false for g in groups) / steps
    if args.limit is not None and false > args.limit:
        print(f"  OVER: {false:.2f} moves a step of falsely shared lines, {args.limit:g} allowed")
        return 1
    return 0


sys.exit(main())
