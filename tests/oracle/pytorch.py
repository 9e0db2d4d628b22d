# SPDX-License-Identifier: Apache-2.0
"""torch.optim in float64, one thread, step by step."""

import torch

torch.set_num_threads(1)


class Reference:
    """`clip` may have a clip_value or a clip_norm, or both: the norm first."""

    def __init__(self, optimizer, options, clip, weights, dim):
        shape = (-1, dim) if dim else (-1,)
        self.parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()).reshape(shape))
        self.optimizer = getattr(torch.optim, optimizer)([self.parameter], **options)
        self.clip = clip

    def step(self, t, gradient):
        self.parameter.grad = torch.from_numpy(gradient)
        if "clip_norm" in self.clip:
            torch.nn.utils.clip_grad_norm_([self.parameter], self.clip["clip_norm"])
        if "clip_value" in self.clip:
            torch.nn.utils.clip_grad_value_([self.parameter], self.clip["clip_value"])
        self.optimizer.step()

    def step_rows(self, t, rows, gradient):
        self.parameter.grad = torch.sparse_coo_tensor(torch.from_numpy(rows[None, :]),
                                                      torch.from_numpy(gradient),
                                                      self.parameter.shape)
        self.optimizer.step()

    def weights(self):
        return self.parameter.detach().numpy().reshape(-1)
