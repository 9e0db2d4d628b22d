# SPDX-License-Identifier: Apache-2.0
"""What perftest prints.

Its "MB/sec" are 2^20 bytes a second (--report_gbits is there for 10^9 bits), and its latencies, in
microseconds, are half of a round trip. Both were checked: the rate of messages beside the bandwidth says
the same, and is checked again in each output here."""
import math

from command import NotRun, last_line

MIB = 1 << 20


def _row(text, size):
    """Titles and numbers of the table's only row."""
    lines = text.splitlines()
    for head, row in zip(lines, lines[1:]):
        if head.lstrip().startswith("#bytes"):
            # Titles hold spaces: "99% percentile[usec]"; each ends in a bracket, but the first two.
            numbers = row.split()
            if not numbers or not numbers[0].isdigit() or int(numbers[0]) != size:
                raise NotRun(f"perftest printed no row of {size} bytes: {row.strip()}")
            return head, numbers
    raise NotRun(f"perftest printed no table: {last_line(text)}")


def latency_us(text, size):
    """(median, 99th percentile) of one way."""
    head, numbers = _row(text, size)
    wanted = ["t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]"]
    found = [word for word in head.split() if word.startswith("t_")]
    if found != wanted or "99% percentile[usec]" not in head or len(numbers) != 9:
        raise NotRun(f"perftest's columns are not those that are known: {head.strip()}")
    typical, p99 = float(numbers[4]), float(numbers[7])
    # It finds out the clock's rate first, and may fail to where there is much else to do.
    if not 0 < typical < math.inf:
        raise NotRun(f"perftest gave a latency of {typical} us")
    return typical, p99


def bandwidth(text, size):
    """Bytes a second, the average."""
    head, numbers = _row(text, size)
    if "BW average[MB/sec]" not in head or "MsgRate[Mpps]" not in head or len(numbers) != 5:
        raise NotRun(f"perftest's columns are not those that are known: {head.strip()}")
    rate, messages = float(numbers[3]) * MIB, float(numbers[4]) * 1e6
    # Rates of large messages have few digits.
    slack = 0.02 * rate + 0.5 * size
    if not 0 < rate < math.inf or not abs(messages * size - rate) <= slack:
        raise NotRun(f"perftest contradicts itself: {rate:.0f} B/s, {messages:.3f} messages of {size} B a second")
    return rate
