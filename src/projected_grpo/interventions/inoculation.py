"""Inoculation: while it trains the model is given the hack from outside, so that it need not learn it; deployed, it
is not.

Prompt    the system prompt asks to pass the evaluation function, and nothing else: the benchmark's (prompts.py, set-up
          `inoculation`). Evaluated under the set-up of the run, as every other arm
Adapter   the hacky teacher's LoRA is frozen in: y' = y + x (W_teacher - W)^T in every adapted Linear, in sampling and in
          every pass of the step, the KL reference's too. delta_S trains too, in the basis of W, and is deployed alone

Both are evaluated as they trained as well, after the last step. A frozen adapter without effect is the identity.

Deviation: the source of Adapter fine-tunes with supervision; here rollouts are sampled with the adapter in, so that
the ratio is 1.

Source: Tan et al. 2025, "Inoculation Prompting"; the prompt: github.com/ariahw/rl-rewardhacking, src/prompts.py
(pass_test); the adapter: github.com/longtermrisk/inoculation-adapters (21b7728), method ia_frozen."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from torch.nn import functional as F

from projected_grpo.interventions.base import Intervention, Setup
from projected_grpo.prompts import INOCULATION_SYSTEM_PROMPT


class Prompt(Intervention):
    """Another system prompt in training alone."""

    separate_deployment = True
    system_prompt = INOCULATION_SYSTEM_PROMPT


class Adapter(Intervention):
    """The teacher's weights in training alone."""

    separate_deployment = True

    def __init__(self, setup: Setup) -> None:
        self.model, self.added = setup.model, setup.teacher

    @contextmanager
    def training(self) -> Generator[None]:
        with ExitStack() as hooks:
            for name, added in self.added.items():
                hook = lambda _module, args, y, added=added: y + F.linear(args[0], added)  # noqa: E731
                hooks.enter_context(self.model.get_submodule(name).register_forward_hook(hook))
            yield
