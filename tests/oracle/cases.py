# SPDX-License-Identifier: Apache-2.0
"""What is compared with what, in groups that run beside one another."""

import functools

import numpy as np

import formulas


class Case:
    def __init__(self, rule, settings, reference, bound=2e-6, table=False, sizes=None,
                 dtype=np.float64):
        self.rule, self.settings, self.reference = rule, settings, reference
        self.bound, self.table, self.sizes, self.dtype = bound, table, sizes, dtype

    @property
    def name(self):
        return " ".join([self.rule] + [f"{k}={v}" for k, v in self.settings.items()])


SMALL = [(1, 200, 0), (7, 200, 0), (4096, 200, 0)]


def torch_case(rule, settings, optimizer, options, **more):
    import pytorch  # not all groups need it, and it takes seconds
    clip = {k: more.pop(k) for k in ("clip_value", "clip_norm") if k in more}
    reference = functools.partial(pytorch.Reference, optimizer, options, clip)
    return Case(rule, settings, reference, **more)


def formula_case(rule, settings, **more):
    table = formulas.DEFAULTS[rule] | settings
    return Case(rule, settings, functools.partial(formulas.Reference, rule, table), **more)


def sgd():
    yield torch_case("sgd", {"lr": 0.002}, "SGD", {"lr": 0.002})
    yield torch_case("sgd", {"lr": 0.002, "weight_decay": 0.1}, "SGD",
                     {"lr": 0.002, "weight_decay": 0.1}, sizes=SMALL)
    yield torch_case("momentum", {"lr": 0.0002}, "SGD", {"lr": 0.0002, "momentum": 0.9})
    yield torch_case("momentum", {"lr": 0.001, "momentum": 0.8, "dampening": 0.3}, "SGD",
                     {"lr": 0.001, "momentum": 0.8, "dampening": 0.3}, sizes=SMALL)
    yield torch_case("momentum", {"lr": 0.0002, "weight_decay": 0.05}, "SGD",
                     {"lr": 0.0002, "momentum": 0.9, "weight_decay": 0.05}, sizes=SMALL)
    yield torch_case("nesterov", {"lr": 0.0002}, "SGD",
                     {"lr": 0.0002, "momentum": 0.9, "nesterov": True})
    yield torch_case("sgd", {"lr": 0.002, "clip_value": 0.8}, "SGD", {"lr": 0.002},
                     clip_value=0.8)
    yield torch_case("sgd", {"lr": 0.02, "clip_norm": 1.0}, "SGD", {"lr": 0.02}, clip_norm=1.0)
    yield torch_case("momentum", {"lr": 0.001, "clip_norm": 0.5, "clip_value": 0.1,
                                  "weight_decay": 0.05}, "SGD",
                     {"lr": 0.001, "momentum": 0.9, "weight_decay": 0.05},
                     clip_norm=0.5, clip_value=0.1, sizes=SMALL)


def adagrad():
    yield torch_case("adagrad", {"lr": 0.01}, "Adagrad", {"lr": 0.01})
    yield torch_case("adagrad", {"lr": 0.02, "lr_decay": 0.01, "initial_accumulator": 0.1,
                                 "weight_decay": 0.01}, "Adagrad",
                     {"lr": 0.02, "lr_decay": 0.01, "initial_accumulator_value": 0.1,
                      "weight_decay": 0.01})
    yield torch_case("adadelta", {}, "Adadelta", {})
    yield torch_case("adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-5, "weight_decay": 0.01},
                     "Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-5, "weight_decay": 0.01},
                     sizes=SMALL)


def rmsprop():
    yield torch_case("rmsprop", {"lr": 0.0005}, "RMSprop", {"lr": 0.0005})
    yield torch_case("rmsprop", {"lr": 0.0005, "momentum": 0.5}, "RMSprop",
                     {"lr": 0.0005, "momentum": 0.5}, sizes=SMALL)
    yield torch_case("rmsprop", {"lr": 0.0005, "centered": 1}, "RMSprop",
                     {"lr": 0.0005, "centered": True})
    # Where decay outweighs the gradient, little is left of square - mean^2, with their rounding.
    yield torch_case("rmsprop", {"lr": 0.0001, "centered": 1, "momentum": 0.5, "alpha": 0.95,
                                 "eps": 1e-6, "weight_decay": 0.01}, "RMSprop",
                     {"lr": 0.0001, "centered": True, "momentum": 0.5, "alpha": 0.95, "eps": 1e-6,
                      "weight_decay": 0.01}, sizes=SMALL, bound=4e-6)


def adam():
    yield torch_case("adam", {"lr": 0.001}, "Adam", {"lr": 0.001})
    yield torch_case("adam", {"lr": 0.001, "amsgrad": 1}, "Adam", {"lr": 0.001, "amsgrad": True})
    yield torch_case("adam", {"lr": 0.001, "beta1": 0.8, "beta2": 0.99, "eps": 1e-4,
                              "weight_decay": 0.01}, "Adam",
                     {"lr": 0.001, "betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.01},
                     sizes=SMALL)
    yield torch_case("adamw", {"lr": 0.001}, "AdamW", {"lr": 0.001})


def moments():
    yield torch_case("adamw", {"lr": 0.001, "weight_decay": 0.3, "amsgrad": 1}, "AdamW",
                     {"lr": 0.001, "weight_decay": 0.3, "amsgrad": True}, sizes=SMALL)
    yield torch_case("adamw", {"lr": 0.001, "weight_decay": 0.3, "decoupled": 0}, "Adam",
                     {"lr": 0.001, "weight_decay": 0.3}, sizes=SMALL)
    yield torch_case("adamax", {"lr": 0.001}, "Adamax", {"lr": 0.001})
    yield torch_case("adamax", {"lr": 0.001, "beta1": 0.8, "beta2": 0.95, "eps": 1e-5,
                                "weight_decay": 0.01}, "Adamax",
                     {"lr": 0.001, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.01},
                     sizes=SMALL)
    yield formula_case("adam", {"lr": 0.001, "eps": 1e-4, "eps_hat": 1})
    yield formula_case("adamax", {"lr": 0.001, "eps": 1e-4, "eps_decayed": 1}, sizes=SMALL)


def rows():
    yield torch_case("sgd", {"lr": 0.01}, "SGD", {"lr": 0.01}, table=True)
    yield torch_case("adagrad", {"lr": 0.01, "initial_accumulator": 0.1}, "Adagrad",
                     {"lr": 0.01, "initial_accumulator_value": 0.1}, table=True)
    yield torch_case("adam", {"lr": 0.001, "eps_hat": 1}, "SparseAdam", {"lr": 0.001}, table=True)
    yield formula_case("rowwise_adagrad", {"lr": 0.01}, table=True)
    yield formula_case("rowwise_adagrad", {"lr": 0.01, "initial_accumulator": 0.1, "eps": 1e-4,
                                           "weight_decay": 0.01}, table=True)
    yield formula_case("ftrl", {"lr": 0.05, "l1": 0.01, "l2": 0.1}, table=True, bound=FTRL)


# ftrl's weight is a quotient whose numerator is a sum over all steps that may cancel: its rounding
# is that of the largest partial sum, and passes to the weight as it is.
FTRL = 1e-4


def formulas_():
    yield formula_case("decayed_adagrad", {"lr": 0.001})
    yield formula_case("rmsprop", {"lr": 0.0005, "momentum": 0.5, "eps": 1e-4, "eps_inside": 1,
                                   "lr_inside": 1})
    yield formula_case("add", {"lr": 0.002})
    # In float32, the order of operations as in the formula: a sign near 0 turns on a rounding.
    yield formula_case("lion", {"lr": 0.001, "weight_decay": 0.1}, dtype=np.float32)
    yield formula_case("sgd", {"lr": 0.002, "l1": 0.1, "weight_decay": 0.2, "decoupled": 1})
    yield formula_case("sgd", {"lr": 0.002, "dc_lambda": 0.5, "clip_value": 0.8, "l1": 0.01},
                       sizes=SMALL)


def norms():
    yield formula_case("ftrl", {"lr": 0.05, "l1": 0.01, "l2": 0.1}, bound=FTRL)
    yield formula_case("ftrl", {"lr": 0.05, "l1": 0.01, "lr_power": -0.7, "beta": 0.5}, bound=FTRL,
                       sizes=[(1, 200, 0), (7, 200, 0), (4096, 200, 0), (1000003, 20, 0)])
    yield formula_case("lars", {"lr": 0.05})
    yield formula_case("lars", {"lr": 0.01, "momentum": 0.5, "trust": 0.01, "weight_decay": 0.01,
                                "eps": 0.1}, sizes=SMALL)
    yield formula_case("lamb", {"lr": 0.001})
    yield formula_case("lamb", {"lr": 0.001, "weight_decay": 0.3, "beta1": 0.8, "eps": 1e-3},
                       sizes=SMALL)


GROUPS = {
    "sgd": sgd,
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "adam": adam,
    "moments": moments,
    "rows": rows,
    "formulas": formulas_,
    "norms": norms,
}
