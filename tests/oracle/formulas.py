# SPDX-License-Identifier: Apache-2.0
"""Optimizers that PyTorch does not have, and what it leaves out of others, written from the cited
publications with numpy. Nothing here is fast or shares a thought with the kernels."""

import numpy as np

ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

DEFAULTS = {
    "sgd": {},
    "decayed_adagrad": {"decay": 0.95, "eps": 1e-6},
    "rmsprop": {"alpha": 0.99, "eps": 1e-8, "momentum": 0.0},
    "adam": ADAM,
    "adamax": ADAM,
    "ftrl": {"l1": 0.0, "l2": 0.0, "lr_power": -0.5, "beta": 0.0},
    "lars": {"momentum": 0.9, "trust": 0.001, "weight_decay": 0.0005, "eps": 0.0},
    "lamb": ADAM | {"eps": 1e-6, "weight_decay": 0.01},
    "lion": {"beta1": 0.9, "beta2": 0.99},
    "add": {"lr": 1.0},
    "rowwise_adagrad": {"initial_accumulator": 0.0, "eps": 1e-10},
}
OWN_DECAY = ("lars", "lamb", "lion")
OWN_L1 = ("ftrl",)


def sgd(c, t, w, g, s):
    return w - c["lr"] * g


def add(c, t, w, g, s):
    return w + c["lr"] * g


def decayed_adagrad(c, t, w, g, s):
    """https://www.paddlepaddle.org.cn/documentation/docs/en/1.8/api/optimizer/DecayedAdagradOptimizer.html"""
    s["moment"] = c["decay"] * s["moment"] + (1 - c["decay"]) * g * g
    return w - c["lr"] * g / (np.sqrt(s["moment"]) + c["eps"])


def rmsprop(c, t, w, g, s):
    """With eps and lr inside: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/RMSProp_en.html"""
    s["r"] = c["alpha"] * s["r"] + (1 - c["alpha"]) * g * g
    s["v"] = c["momentum"] * s["v"] + c["lr"] / np.sqrt(s["r"] + c["eps"]) * g
    return w - s["v"]


def adam(c, t, w, g, s):
    """https://arxiv.org/abs/1412.6980, the form with epsilon hat at the end of section 2."""
    s["m"] = c["beta1"] * s["m"] + (1 - c["beta1"]) * g
    s["v"] = c["beta2"] * s["v"] + (1 - c["beta2"]) * g * g
    alpha = c["lr"] * np.sqrt(1 - c["beta2"] ** t) / (1 - c["beta1"] ** t)
    return w - alpha * s["m"] / (np.sqrt(s["v"]) + c["eps"])


def adamax(c, t, w, g, s):
    """https://arxiv.org/abs/1412.6980, section 7.1, with epsilon as PaddlePaddle's."""
    s["m"] = c["beta1"] * s["m"] + (1 - c["beta1"]) * g
    s["u"] = np.maximum(c["beta2"] * s["u"] + c["eps"], np.abs(g))
    return w - c["lr"] / (1 - c["beta1"] ** t) * s["m"] / s["u"]


def ftrl(c, t, w, g, s):
    """https://doi.org/10.1145/2487575.2488200, algorithm 1, with 2 l2 for its lambda2."""
    power = -c["lr_power"]
    new = s["n"] + g * g
    sigma = (new ** power - s["n"] ** power) / c["lr"]
    s["z"] = s["z"] + g - sigma * w
    s["n"] = new
    below = (c["beta"] + new ** power) / c["lr"] + 2 * c["l2"]
    return np.where(np.abs(s["z"]) > c["l1"], (np.sign(s["z"]) * c["l1"] - s["z"]) / below, 0.0)


def lars(c, t, w, g, s):
    """https://arxiv.org/abs/1708.03888, algorithm 1."""
    w_norm, g_norm = np.sqrt(np.sum(w * w)), np.sqrt(np.sum(g * g))
    local = c["trust"] * w_norm / (g_norm + c["weight_decay"] * w_norm + c["eps"])
    s["v"] = c["momentum"] * s["v"] + c["lr"] * local * (g + c["weight_decay"] * w)
    return w - s["v"]


def lamb(c, t, w, g, s):
    """https://arxiv.org/abs/1904.00962, algorithm 2, phi(z) = z."""
    s["m"] = c["beta1"] * s["m"] + (1 - c["beta1"]) * g
    s["v"] = c["beta2"] * s["v"] + (1 - c["beta2"]) * g * g
    m, v = s["m"] / (1 - c["beta1"] ** t), s["v"] / (1 - c["beta2"] ** t)
    r = m / (np.sqrt(v) + c["eps"]) + c["weight_decay"] * w
    return w - c["lr"] * np.sqrt(np.sum(w * w)) / np.sqrt(np.sum(r * r)) * r


def lion(c, t, w, g, s):
    """https://arxiv.org/abs/2302.06675, algorithm 2. In float32, with settings rounded to it."""
    f = np.float32
    beta1, beta2 = f(c["beta1"]), f(c["beta2"])
    update = np.sign(beta1 * s["m"] + f(1 - np.float64(beta1)) * g)
    s["m"] = beta2 * s["m"] + f(1 - np.float64(beta2)) * g
    return w - (f(c["lr"]) * update + f(c["lr"]) * f(c.get("weight_decay", 0)) * w)


def rowwise_adagrad(c, t, w, g, s):
    """FBGEMM's EXACT_ROWWISE_ADAGRAD."""
    s["sum"] = s["sum"] + np.mean(g * g, axis=1, keepdims=True)
    return w - c["lr"] * g / (np.sqrt(s["sum"] + c["initial_accumulator"]) + c["eps"])


class State(dict):
    """Arrays that are zero when they are first looked at."""

    def __init__(self, like, row):
        super().__init__()
        self.like, self.row = like, row

    def __missing__(self, name):
        shape = self.like.shape[:1] + (1,) if self.row else self.like.shape
        self[name] = np.zeros(shape, self.like.dtype)
        return self[name]


class Reference:
    def __init__(self, rule, settings, weights, dim):
        self.rule, self.c = rule, settings
        self.w = weights.reshape(-1, dim).copy() if dim else weights.copy()
        self.first = self.w.copy()
        self.s = State(self.w, rule == "rowwise_adagrad")

    def adjust(self, w, g, first):
        """Clipping and decay: the gradient, and the weights before the step."""
        c = self.c
        decay = 0 if self.rule in OWN_DECAY else w.dtype.type(c.get("weight_decay", 0))
        if "clip_value" in c:
            g = np.clip(g, -c["clip_value"], c["clip_value"])
        if "dc_lambda" in c:
            g = g + c["dc_lambda"] * g * g * (w - first)
        if "l1" in c and self.rule not in OWN_L1:
            g = g + c["l1"] * np.sign(w)
        if decay and not c.get("decoupled"):
            g = g + decay * w
        if decay and c.get("decoupled"):
            w = w - w.dtype.type(c["lr"]) * decay * w
        return w, g

    def step(self, t, g):
        w, g = self.adjust(self.w, g, self.first)
        self.w = globals()[self.rule](self.c, t, w, g, self.s)

    def step_rows(self, t, rows, g):
        """The same with the rows' weights and state, which are put back afterwards."""
        w, g = self.adjust(self.w[rows], g, self.first[rows])
        part = State(w, self.s.row)
        part.update({name: self.s[name][rows] for name in self.s})
        self.w[rows] = globals()[self.rule](self.c, t, w, g, part)
        for name in part:
            self.s[name][rows] = part[name]

    def weights(self):
        return self.w.reshape(-1)
