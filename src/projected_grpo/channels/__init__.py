"""Learning signals, one page each: pure functions of tensors, data in, loss and metrics out."""
