"""Other answers to reward hacking, one page each, beside the projection that this project is about.

An intervention is an entry in the registry of arms (arms.py: one line of help, its source, what it may see) and a page here,
a class with some of these hooks. A hook that a page does not write does nothing, so what is not said is vanilla GRPO.

    hook                 when                                             is shown, where the entry declares it
    __init__(setting)    once, after model, adapter and V are loaded      basis, pairs, model, teacher, coordinates, finished
    advantages(view)     before the backward pass                         rewards, hidden, text, truth
    gradient(view)       summed over all samples, before clipping         gradient, basis
    update(view)         after the optimizer, before the next step        update, basis, optimizer
    prompt_setup         the system prompt of training alone              -
    training()           a context around sampling and the step           -
    routed(view)         a context around one prompt's rows (by_prompt)   question
    deployed()           a context around every evaluation                -
    alone()              a context around an evaluation of one part       -
    state(), restore()   with every checkpoint, and on --resume           -

What is shown is declared in the entry (`sees`) and handed over in a `View`, which holds the declared fields and no others:
to read one that was not declared is an error that names both. No hook is given the run, its rows, its groups or its folder.
Ground truth comes through one door (door.py), which opens to entries with labels=True alone; those are called "(oracle)" in
every table. tests/test_layering.py knows the door: it fails when another module opens it, and when a page names a label.
This keeps honest code honest. It is no sandbox: a page that digs through Python's internals is not held back.

Where a page is told something random (a noisy monitor), the draw is a function of the seed, the step and the sample's place.
"""
