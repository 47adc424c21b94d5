"""Frozen models behind an endpoint, asked at each replayed step what they would do: answers, what they cost, how long they
took."""
