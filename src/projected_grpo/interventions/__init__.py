"""Other answers to reward hacking, one file each.

An intervention is a row in arms.py (one line of help, its source, which fields of `Shown` it needs) and a class here with
some of these hooks. A hook that it does not override does nothing, so the rest is vanilla GRPO.

    hook                         when
    __init__(setup)              once, after model, adapter and V are loaded
    advantages(rewards, shown)   before the backward pass
    gradient(gradient, shown)    summed over all samples, before clipping
    update(update, shown)        after the optimizer, before the next step
    prompt_setup                 the system prompt of training alone
    training()                   a context around sampling and the step
    routed(question)             a context around one prompt's rows (by_prompt)
    deployed()                   a context around every evaluation
    alone()                      a context around an evaluation of one part
    state(), restore()           with every checkpoint, and on --resume

What is shown is the frozen dataclass `Shown` (base.py), filled in run/intervening.py. Its field `truth`, the ground truth,
is None unless the arm has labels=True; those arms are called "(oracle)" in every table.

Where an intervention needs something random (a noisy monitor), the draw is a function of the seed, the step and the sample's
place.
"""
