"""Other answers to reward hacking, one file each: rows in arms.py, and a class with some of base.py's hooks.

Where an intervention needs something random (a noisy monitor), the draw is a function of the seed, the step and the
sample's place."""
