"""Other answers to reward hacking, one file each.

An intervention is a row in arms.py (one line of help, its source, what it reads) and a class here with some of these hooks.
A hook that it does not override does nothing, so the rest is vanilla GRPO.

    hook                           when
    __init__(setup)                once, after model, adapter and V are loaded
    advantages(rewards, context)   before the backward pass
    gradient(gradient, context)    summed over all samples, before clipping
    update(update, context)        after the optimizer, before the next step
    prompt_setup                   the system prompt of training alone
    training()                     a context around sampling and the step
    routed(prompt_ids)             a context around one prompt's rows (by_prompt)
    deployed()                     a context around every evaluation
    only_part()                    a context around an evaluation of one part
    state(), restore()             with every checkpoint, and on --resume

It reads the frozen dataclasses `Setup` and `StepContext` (base.py), which run/intervening.py fills. The field `truth`
(ground truth) is None unless the arm has labels=True; those arms are called "(oracle)" in every table.

Where an intervention needs something random (a noisy monitor), the draw is a function of the seed, the step and the sample's
place.
"""
