#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What perf/compare makes of what other programs print, and of its samples."""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "perf" / "compare.d"))

import extras  # noqa: E402
import guest  # noqa: E402
import lines  # noqa: E402
import perftest  # noqa: E402
import subjects  # noqa: E402
from command import NotRun, run, run_json  # noqa: E402
from figures import Case, Figure, Sample, Samples, median, parse_size, probes_agree, size_text  # noqa: E402
from native import wanted  # noqa: E402

LATENCY = """
 Max inline data : 0[B]
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 4096    200          38.69          11962.01      40.64  \t       2813.66     \t2788.89\t\t8542.27 \t\t11962.01
---------------------------------------------------------------------------------------
"""
BANDWIDTH = """
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 4096       200              86.82              57.74  \t\t   0.014781
---------------------------------------------------------------------------------------
"""


class Figures(unittest.TestCase):
    def test_median(self):
        self.assertEqual(median([3]), 3)
        self.assertEqual(median([9, 1, 5]), 5)
        self.assertEqual(median([4, 1, 2, 9]), 3)

    def test_sizes(self):
        self.assertEqual(parse_size("4K"), 4096)
        self.assertEqual(parse_size("64m"), 64 << 20)
        self.assertEqual(size_text(64 << 20), "64 MiB")
        self.assertEqual(size_text(6), "6 B")
        for bad in ("", "K", "2", "7", "2G", "-4K", "4KB"):
            with self.assertRaises(ValueError, msg=bad):
                parse_size(bad)

    def test_probes(self):
        self.assertTrue(probes_agree())
        self.assertTrue(probes_agree(50, 60))
        self.assertFalse(probes_agree(50, 63))
        self.assertFalse(probes_agree(50, None))
        self.assertFalse(probes_agree(None, None))

    def test_rounds_whose_probe_moved_are_left_out(self):
        case, s = Case("a", 4096), Samples()
        s.add(case, 0, Sample(1, (50, 50)))
        s.add(case, 1, Sample(100, (50, 200)))
        f = s.figure(case)
        self.assertEqual((f.median, f.rounds, f.left_out, f.unsteady), (1, 1, 1, False))

    def test_if_it_always_moved_they_are_labelled(self):
        case, s = Case("a", 4096), Samples()
        s.add(case, 0, Sample(7, (50, 200)))
        f = s.figure(case)
        self.assertEqual((f.median, f.left_out, f.unsteady), (7, 0, True))

    def test_large_sizes_do_not_ask_the_probe(self):
        case, s = Case("a", 1 << 20), Samples()
        s.add(case, 0, Sample(7, (50, 200)))
        self.assertEqual(s.figure(case), Figure(7, 7, 7, 1))

    def test_ratio_is_of_the_same_rounds(self):
        a, b, s = Case("a", 1 << 20), Case("b", 1 << 20), Samples()
        for number, (x, y) in enumerate([(10, 5), (30, 10), (1000, None), (8, 8)]):
            s.add(a, number, Sample(x))
            if y:
                s.add(b, number, Sample(y))
        self.assertEqual(s.ratio(a, b), Figure(2, 1, 3, 3))
        self.assertIsNone(s.ratio(a, Case("c")))

    def test_ratio_of_latencies_wants_cores_equally_far_apart(self):
        a, b, s = Case("a", 4096), Case("b", 4096), Samples()
        s.add(a, 0, Sample(1, (50, 50)))
        s.add(b, 0, Sample(1, (52, 51)))
        s.add(a, 1, Sample(9, (200, 200)))
        s.add(b, 1, Sample(1, (50, 50)))
        self.assertEqual(s.ratio(a, b), Figure(1, 1, 1, 1, 1))

    def test_no_time_is_no_sample(self):
        for us in (0, -1, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                Samples().add(Case("a"), 0, Sample(us))


class Lines(unittest.TestCase):
    def line(self, value, sense, limit):
        return lines.Line("x", Figure.of([value]), sense, limit)

    def test_verdicts(self):
        self.assertEqual(self.line(1.5, lines.AT_MOST, 1.5).verdict(), "PASS")
        self.assertEqual(self.line(1.8, lines.AT_MOST, 1.5).verdict(), "SHORT by 20 %")
        self.assertEqual(self.line(0.85, lines.AT_LEAST, 0.85).verdict(), "PASS")
        self.assertEqual(self.line(0.4, lines.AT_LEAST, 0.8).verdict(), "SHORT by 50 %")
        self.assertEqual(lines.not_judged("x", "why").verdict(), "NOT JUDGED")

    def test_nothing_measured_is_nothing_judged(self):
        for line in lines.native_lines(Samples(), [], {}, {}):
            self.assertIsNone(line.holds(), line.text)
            self.assertTrue(line.note, line.text)

    def test_a_rival_that_is_slower_makes_a_line_hold(self):
        s = Samples()
        for name, us in (("mpi", 50), ("view", 9), ("copy", 40)):
            s.add(Case(name, lines.BIG, "sgd", 2), 0, Sample(us))
        got = {line.text: line.verdict() for line in lines.rival_lines(s) if line.figure}
        self.assertEqual(
            got,
            {
                "64 MiB sgd, 2 trainers, zero-copy: faster than OpenMPI Allreduce + step": "PASS",
                "64 MiB sgd, 2 trainers, with copies: faster than OpenMPI Allreduce + step": "SHORT by 17 %",
            },
        )

    def test_floors_go_with_what_was_measured(self):
        s = Samples()
        floor = {"view_us": 4, "pull_us": 5, "copy_us": 7, "view_few_us": 8, "pull_few_us": 10, "copy_few_us": 14}
        s.add(Case("floor", lines.BIG, "sgd", 1), 0, Sample(5, more=floor))
        for name in ("view", "pull", "copy"):
            s.add(Case(name, lines.BIG, "sgd", 1), 0, Sample(10))
        got = [(line.figure.median, line.also["of_few"]) for line in lines.floor_lines(s) if line.figure]
        self.assertEqual(got, [(0.4, 0.8), (0.5, 1.0), (0.7, 1.4)])

    def test_the_near_line_is_only_of_near_rounds(self):
        s = Samples()
        spin = Case("spin", 4096, "sgd", 1)
        s.add(spin, 0, Sample(1.0, (55, 58)))
        s.add(spin, 1, Sample(3.0, (180, 190)))
        near = next(lines.latency_lines(s))
        self.assertEqual((near.figure.median, near.figure.rounds), (1.0, 1))

    def test_guest_rates_are_compared_as_rates(self):
        s = Samples()
        s.add(Case("push", 4096), 0, Sample(2))
        s.add(Case("write_bw", 4096), 0, Sample(1))
        (line,) = [line for line in lines.guest_lines(s, [4096]) if line.figure]
        self.assertEqual((line.figure.median, line.verdict()), (0.5, "SHORT by 47 %"))


class Outputs(unittest.TestCase):
    def test_perftest_latency(self):
        self.assertEqual(perftest.latency_us(LATENCY, 4096), (40.64, 8542.27))
        for old, new in ((" 4096 ", " 8192 "), ("40.64", "inf"), ("t_avg", "t_mean"), ("#bytes", "bytes")):
            with self.assertRaises(NotRun, msg=new):
                perftest.latency_us(LATENCY.replace(old, new), 4096)

    def test_perftest_bandwidth_is_in_mib(self):
        self.assertAlmostEqual(perftest.bandwidth(BANDWIDTH, 4096), 57.74 * 2**20)
        # Were it 10^6 bytes, the two would not agree.
        for old, new in (("57.74", "60.54"), ("57.74", "inf"), ("57.74", "0.00"), ("0.014781", "0.01")):
            with self.assertRaises(NotRun, msg=new):
                perftest.bandwidth(BANDWIDTH.replace(old, new), 4096)

    def test_ucx(self):
        head = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
        self.assertEqual(subjects.ucx_us(f"{head}\n2000,17.814,76.973,76.973,1,1,1,1\n"), 17.814)
        with self.assertRaises(NotRun):
            subjects.ucx_us("no, nothing\n")

    def test_kernels(self):
        rows = [("memcpy", "f32", 20), ("triad", "f32", 21), ("sgd", "f32", 5), ("sgd", "f32", 30)]
        rows += [("adam", "f32", 31), ("sgd", "bf16", 99)]
        rules = [{"rule": r, "dtype": d, "gb_per_s": v} for r, d, v in rows]
        sample = subjects.kernels_sample({"points": [{"bytes": 1 << 20, "rules": rules}]}, 1 << 20)
        self.assertAlmostEqual(sample.us, 2 * (1 << 20) / 20e3)
        self.assertEqual(sample.more["sgd_gb_per_s"], 30)

    def test_cost(self):
        text = (
            "mode   trainers  active   blocks instructions   growth  budget\n"
            "sync          1       1      100          512       0%     600 \n"
            "async        64       1      100          700      37%     600 OVER\n"
        )
        rows = extras.cost_rows(text)
        self.assertEqual([(r["instructions"], r["over"]) for r in rows], [(512, False), (700, True)])
        judged = [line.verdict() for line in lines.extra_lines({"cost": rows}, {}) if line.figure]
        self.assertEqual(judged, ["PASS", "SHORT by 17 %", "SHORT by 23 %"])

    def test_scale(self):
        self.assertEqual(extras.scale_ratio("many …\none …\nratio 1.25\n"), 1.25)
        with self.assertRaises(NotRun):
            extras.scale_ratio("many …\n")

    def test_guest_rows(self):
        rows = [
            {"subject": "write_lat", "size": 4096, "round": 0, "us": 40, "p99_us": 90},
            {"subject": "write_lat", "size": 8, "round": "4096/0", "us": 10},
            {"subject": "latency", "size": 4096, "round": 0, "not_run": "no such benchmark"},
        ]
        samples, not_run = guest.file_rows(rows)
        self.assertEqual(samples.figure(Case("there_and_back", 4096)).median, 50)
        self.assertEqual(not_run, {"latency 4 KiB": "no such benchmark"})

    def test_updates_are_taken_off_in_their_rounds(self):
        rows = [
            {"subject": "latency", "size": 4096, "round": 0, "us": 70},
            {"subject": "update", "size": 4096, "round": 0, "us": 8},
            {"subject": "latency", "size": 4096, "round": 1, "us": 60},  # no update in this round
            {"subject": "latency", "size": 4096, "round": 2, "us": 5},
            {"subject": "update", "size": 4096, "round": 2, "us": 8},  # nonsense
            {"subject": "write_lat", "size": 4096, "round": 0, "us": 40},
            {"subject": "write_lat", "size": 8, "round": "4096/0", "us": 10},
        ]
        samples, _ = guest.file_rows(rows)
        without = samples.of(Case("without_update", 4096))
        self.assertEqual({number: s.us for number, s in without.items()}, {0: 62})
        judged = [line.figure.median for line in lines.guest_lines(samples, [4096]) if line.figure]
        self.assertEqual(judged, [70 / 50, 62 / 50])


class Running(unittest.TestCase):
    def test_what_is_missing_or_fails_says_why(self):
        for command, why in (
            (["/no/such/program"], "No such file"),
            (["sh", "-c", "echo reason >&2; exit 3"], "ended with 3: reason"),
        ):
            with self.assertRaisesRegex(NotRun, why):
                run(command)
        with self.assertRaisesRegex(NotRun, "took longer"):
            run(["sleep", "60"], timeout=0.2)
        with self.assertRaisesRegex(NotRun, "no JSON"):
            run_json(["echo", "hello"])

    def test_json_may_follow_other_lines(self):
        self.assertEqual(run_json(["printf", 'a warning\n{"us": 1}\n']), {"us": 1})

    def test_each_subject_has_cases_of_its_own(self):
        class Options:
            only, quick, sizes, optimizers, trainers = [], False, [], [], []

        for size, cases in wanted(Options).items():
            self.assertEqual(len({c for _, c in cases}), len(cases), size)
            self.assertTrue(all(c.size == size for _, c in cases))


if __name__ == "__main__":
    unittest.main()
