"""Other answers to reward hacking, one file each.

An intervention is a row in arms.py (one line of help, its source, what it reads) and a class here with some of base.py's
hooks. One that it does not override does nothing, so the rest is vanilla GRPO.

Where an intervention needs something random (a noisy monitor), the draw is a function of the seed, the step and the sample's
place.
"""
