"""Files of a run, its log, and the rates of its rows. No torch."""
