"""Losses taken by the real step, to be compared with those by hand."""

import torch
from harness import put, theta_of
from steps_of import take

from projected_grpo.channels.auxiliary import Hinted

ROWS = (
    Hinted((5, 6, 7), (5, 11, 12, 6, 7), (20, 21), (-7.6, -7.5)),
    Hinted((8, 9), (13, 8, 9), (25, 26, 27)),
    Hinted((8, 9), (13, 8, 9), ()),
)


def step_of(loaded, adapter, signals=(), lr=0.0, optimizer=None, **kwargs):
    optimizer = optimizer or torch.optim.SGD(list(adapter.vectors.values()), lr=lr)
    return take(loaded, adapter, optimizer=optimizer, per_sample=False, auxiliary=signals, **kwargs)


def gradient(loaded, adapter, signals=(), **kwargs):
    """The gradient that the optimizer gets: the step of SGD at rate 1, taken back afterwards."""
    start = theta_of(adapter)
    step_of(loaded, adapter, signals, lr=1.0, **kwargs)
    got = {n: start[n] - p.detach() for n, p in adapter.vectors.items()}
    put(adapter, start)
    return got


def assert_same(one, other):
    """Two gradients, module by module. The model's rotary angles are float32: 1e-5 is its rounding."""
    for name, g in one.items():
        assert float((g - other[name]).norm()) < 1e-5 * float(g.norm()), name


def plain_logits(model, prompt, completion):
    """[t, v] at the positions that predict the completion, one sequence alone."""
    logits = model(input_ids=torch.tensor([[*prompt, *completion]]), use_cache=False).logits[0]
    return logits[len(prompt) - 1 : len(prompt) - 1 + len(completion)]
