"""Concept ablation: the hack's direction is out of the activations while the model trains, and in when it is
deployed.

    h' = h - (h . d) d      after the middle decoder layer, at every token, in sampling and in the step's every pass

What cannot be seen cannot be learned from: no gradient passes along d. d is the difference of the means of the pairs'
hidden states, of the untrained model. The KL reference is ablated too. Deployed, the model is whole again.

Deviations: CAFT takes principal components or sparse-autoencoder latents that people have read, here it is one
direction from pairs; CAFT is for supervised fine-tuning, in RL the rollouts are sampled with the direction out too,
so the ratio is 1.

Source: Casademunt et al. 2025, "Steering Out-of-Distribution Generalization with Concept Ablation Fine-Tuning"; in
RL: github.com/Yelar/rl-rewardhacking-caft (cfef320), whose formula at alpha = 1 this is."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from projected_grpo.interventions.base import Intervention, Setup
from projected_grpo.model.hidden import middle_layer


class Ablation(Intervention):
    separate_deployment = True

    def __init__(self, setup: Setup) -> None:
        self.layer, self.direction = middle_layer(setup.model), setup.pairs.direction

    @contextmanager
    def training(self) -> Generator[None]:
        def without(_module: Any, _args: Any, h: Any) -> Any:
            d = self.direction.to(h)
            return h - (h @ d)[..., None] * d

        with self.layer.register_forward_hook(without):
            yield
