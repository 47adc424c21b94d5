"""What the probe's step files say: numbers with intervals, remarks, a printout and a histogram."""
