"""Trainable coordinates on the Linears of a frozen model; both kinds go through `base.Adapter`."""
