#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""oracle.py OPTIMIZER_STEPS GROUP: the optimizers against PyTorch's, or the published formula.

The program makes the steps in float32, torch.optim (or formulas.py, where PyTorch has no such
optimizer) makes the same ones in float64 with the same gradients: what is left is the rounding of
float32. The error of an element is |a - b| / max(|b|, 1e-3 max|b|), and the largest may be 2e-6,
unless a case says more, and why.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np

import cases

STRIDE = 1031  # as in optimizer_steps.c
DENSE_SIZES = [(1, 200, 0), (7, 200, 0), (4096, 200, 0), (1000003, 200, 0)]
TABLE_SIZES = [(7, 200, 1), (4096, 200, 64), (1000000, 200, 32)]


def make_input(length, steps):
    """Weights that are not tiny and stay so, and gradients from 1e-3 to 1 in size.

    Each step rounds each weight once at least. Over a million elements the largest sum of 200 such
    errors is five standard deviations, 5 sqrt(200 / 12) units in the last place, for PyTorch in
    float32 as well: 2e-6 of a weight in the upper half of a binade, 4e-6 of one at its bottom.
    """
    rng = np.random.default_rng(length)
    weights = rng.uniform(0.75, 0.95, length) * rng.choice([-1.0, 1.0], length)
    factors = 10.0 ** rng.uniform(-3, 0, length)
    factors[0] = 1
    pool = rng.standard_normal((steps - 1) * STRIDE + length)
    return [x.astype(np.float32) for x in (weights, factors, pool)]


def gradients(factors, pool, steps):
    for t in range(1, steps + 1):
        at = (t - 1) * STRIDE
        yield t, factors * pool[at:at + len(factors)]


def rows_of_step(length, dim, t):
    rows = np.arange(length // dim)
    return rows[(rows + t) % 3 == 0]


def run_program(program, case, size, data, folder):
    length, steps, dim = size
    source, result = os.path.join(folder, "in"), os.path.join(folder, "out")
    with open(source, "wb") as f:
        for x in data:
            x.tofile(f)
    settings = [f"{k}={v!r}" for k, v in case.settings.items()]
    subprocess.run([program, case.rule, str(length), str(steps), str(dim), source, result,
                    *settings], check=True)
    return np.fromfile(result, dtype=np.float32)


def run_reference(case, size, data):
    length, steps, dim = size
    weights, factors, pool = data
    reference = case.reference(weights.astype(case.dtype), dim)
    for t, g in gradients(factors, pool, steps):
        g = g.astype(case.dtype)
        if dim:
            rows = rows_of_step(length, dim, t)
            reference.step_rows(t, rows, g.reshape(-1, dim)[rows])
        else:
            reference.step(t, g)
    return reference.weights()


def error_of(got, want):
    want = want.astype(np.float64)
    floor = 1e-3 * np.max(np.abs(want)) or 1e-30
    return float(np.max(np.abs(got - want) / np.maximum(np.abs(want), floor)))


def check(program, case, size, folder):
    data = make_input(size[0], size[1])
    got = run_program(program, case, size, data, folder)
    want = run_reference(case, size, data)
    error = error_of(got, want)
    moved = float(np.max(np.abs(want - data[0])))
    good = np.isfinite(got).all() and error <= case.bound and moved > 1e-4
    print(f"{'ok  ' if good else 'FAIL'} {case.name:60s} {size[0]:8d} elements: "
          f"error {error:.2e}, at most {case.bound:.0e}; moved {moved:.3f}", flush=True)
    return good


def main():
    program, group = sys.argv[1:3]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases.GROUPS[group]():
            for size in case.sizes or (TABLE_SIZES if case.table else DENSE_SIZES):
                bad += not check(program, case, size, folder)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
