"""The UAT's printout: T1 to T4 with effect sizes, and those of a random V."""
