#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules against torch.optim.lr_scheduler, and against their published formulas
where torch has no such rule. Usage: schedule.py SCHEDULE_DUMP

The first CLOCKS clocks of each are compared. Torch goes on from the rate before in most rules, so
its own rounding adds up: TOLERANCE is for that.
"""
import math
import subprocess
import sys
import warnings

import torch
from torch.optim import lr_scheduler as torch_lr

CLOCKS = 400
TOLERANCE = 1e-9
LR = 0.1


def rates_of_torch(make, clocks=CLOCKS, lr=LR):
    """The rates that a fresh optimizer has under make(optimizer), update by update."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make(optimizer)
    rates = []
    for _ in range(clocks):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def rates_of(formula, clocks=CLOCKS):
    return [formula(t) for t in range(clocks)]


def warmed(n, start, make):
    """n updates of LinearLR from `start`, then what make(optimizer) gives."""
    def both(o):
        return torch_lr.SequentialLR(
            o, [torch_lr.LinearLR(o, start_factor=start, total_iters=n), make(o)], milestones=[n])
    return both


def piecewise(t):
    """Paddle's PiecewiseDecay."""
    for at, rate in zip((50, 120, 300), (0.3, 0.02, 0.7)):
        if t < at:
            return rate
    return 0.001


def polynomial(steps, end, power, cycle):
    """Paddle's PolynomialDecay."""
    def rate(t):
        if cycle:
            of = steps * max(1, math.ceil(t / steps))
        else:
            of, t = steps, min(t, steps)
        return (LR - end) * (1 - t / of) ** power + end
    return rate


def noam(d_model, warmup):
    """Section 5.3 of "Attention Is All You Need", from step 1."""
    return lambda t: LR * d_model**-0.5 * min((t + 1) ** -0.5, (t + 1) * warmup**-1.5)


def held(rates, n):
    """The first n + 1 rates, and the last of them from there on."""
    return [rates[min(t, n)] for t in range(CLOCKS)]


def one_cycle(steps, **more):
    """Torch refuses to go past the end; the last rate stays."""
    rates = rates_of_torch(
        lambda o: torch_lr.OneCycleLR(o, max_lr=LR, total_steps=steps, cycle_momentum=False, **more),
        clocks=steps)
    return held(rates, steps - 1)


def cases():
    """Pairs of a text and the rates that it should give."""
    yield "constant", rates_of_torch(lambda o: torch_lr.ConstantLR(o, factor=1))
    yield "step:every=30", rates_of_torch(lambda o: torch_lr.StepLR(o, 30))
    yield "step:every=7,gamma=0.93", rates_of_torch(lambda o: torch_lr.StepLR(o, 7, 0.93))
    yield "step:every=1,gamma=1.02", rates_of_torch(lambda o: torch_lr.StepLR(o, 1, 1.02))
    yield "multistep:at=30/60/80", rates_of_torch(lambda o: torch_lr.MultiStepLR(o, [30, 60, 80]))
    yield ("multistep:at=1/2/200/390,gamma=0.3",
           rates_of_torch(lambda o: torch_lr.MultiStepLR(o, [1, 2, 200, 390], 0.3)))
    yield "piecewise:at=50/120/300,rates=0.3/0.02/0.7/0.001", rates_of(piecewise)
    yield "exponential:gamma=0.97", rates_of_torch(lambda o: torch_lr.ExponentialLR(o, 0.97))
    yield "exponential:gamma=1.01", rates_of_torch(lambda o: torch_lr.ExponentialLR(o, 1.01))
    # TensorFlow's and early Paddle's exponential decay.
    yield "exponential:gamma=0.5,every=40", rates_of(lambda t: LR * 0.5 ** (t / 40))
    yield "exponential:gamma=0.5,every=40,staircase=1", rates_of(lambda t: LR * 0.5 ** (t // 40))
    # Paddle's InverseTimeDecay, and early Paddle's with a length and stairs.
    yield "inverse_time:gamma=0.25", rates_of(lambda t: LR / (1 + 0.25 * t))
    yield "inverse_time:gamma=0.5,every=30", rates_of(lambda t: LR / (1 + 0.5 * t / 30))
    yield ("inverse_time:gamma=0.5,every=30,staircase=1",
           rates_of(lambda t: LR / (1 + 0.5 * (t // 30))))
    yield ("polynomial:steps=300",
           rates_of_torch(lambda o: torch_lr.PolynomialLR(o, total_iters=300, power=1)))
    yield ("polynomial:steps=350,power=2.5",
           rates_of_torch(lambda o: torch_lr.PolynomialLR(o, total_iters=350, power=2.5)))
    for end, power, cycle in (0.01, 1, 0), (0.2, 0.5, 0), (0.001, 2, 1), (0, 1, 1):
        yield (f"polynomial:steps=90,end={end},power={power},cycle={cycle}",
               rates_of(polynomial(90, end, power, cycle)))
    for steps, end in (300, 0), (250, 0.01), (1000, 0.2):
        # Past its end torch's rises again.
        yield (f"cosine:steps={steps},end={end}",
               held(rates_of_torch(lambda o: torch_lr.CosineAnnealingLR(o, steps, end)), steps))
    for steps, mult, end in (60, 1, 0), (25, 2, 0.001), (7, 3, 0.2):
        yield (f"cosine:steps={steps},end={end},cycle=1,mult={mult}",
               rates_of_torch(
                   lambda o: torch_lr.CosineAnnealingWarmRestarts(o, steps, mult, end)))
    yield "one_cycle:steps=400", one_cycle(400)
    yield "one_cycle:steps=300,linear=1", one_cycle(300, anneal_strategy="linear")
    yield ("one_cycle:steps=333,pct_start=0.45,div_factor=10,final_div_factor=100",
           one_cycle(333, pct_start=0.45, div_factor=10, final_div_factor=100))
    yield "one_cycle:steps=250,pct_start=0", one_cycle(250, pct_start=0.0)
    yield "noam:d_model=512,warmup=100", rates_of(noam(512, 100))
    yield "noam:d_model=3,warmup=7", rates_of(noam(3, 7))
    # Warm-up: torch's LinearLR has no start at 0, Paddle's LinearWarmup has.
    yield ("warmup:steps=40,from=0.25",
           rates_of_torch(lambda o: torch_lr.LinearLR(o, start_factor=0.25, total_iters=40)))
    yield "warmup:steps=30", rates_of(lambda t: LR * min(t, 30) / 30)
    yield ("warmup:steps=50,from=0.1+step:every=60,gamma=0.5",
           rates_of_torch(warmed(50, 0.1, lambda o: torch_lr.StepLR(o, 60, 0.5))))
    yield ("warmup:steps=20,from=0.5+exponential:gamma=0.98",
           rates_of_torch(warmed(20, 0.5, lambda o: torch_lr.ExponentialLR(o, 0.98))))
    yield ("warmup:steps=100+polynomial:steps=90,end=0.01,power=2",
           rates_of(lambda t: LR * t / 100 if t < 100 else polynomial(90, 0.01, 2, 0)(t - 100)))


def dump(program, texts):
    lines = "".join(f"{LR!r} {t} {text}\n" for text in texts for t in range(CLOCKS))
    done = subprocess.run([program], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    rates = [float(line) for line in done.stdout.split()]
    if len(rates) != CLOCKS * len(texts):
        sys.exit(f"{program}: {len(rates)} rates for {CLOCKS * len(texts)} lines")
    return [rates[i * CLOCKS:(i + 1) * CLOCKS] for i in range(len(texts))]


def main():
    # Torch warns of its own way to step through schedules in a sequence.
    warnings.filterwarnings("ignore", category=UserWarning)
    wanted = list(cases())
    wrong = 0
    for (text, want), got in zip(wanted, dump(sys.argv[1], [text for text, _ in wanted])):
        assert len(want) == CLOCKS
        worst, at = max((abs(g - w) / abs(w) if w else abs(g), t)
                        for t, (g, w) in enumerate(zip(got, want)))
        bad = not worst <= TOLERANCE or not all(map(math.isfinite, got))
        wrong += bad
        print(f"{'WRONG' if bad else 'ok':5} {text}: {worst:.1e} at {at}"
              + (f": {got[at]!r}, not {want[at]!r}" if bad else ""))
    print(f"{len(wanted) - wrong} of {len(wanted)} schedules, {CLOCKS} clocks each, torch",
          torch.__version__)
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
