"""The UAT's printout: T1 to T4 with effect sizes, beside a random V."""
