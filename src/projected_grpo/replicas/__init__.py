"""Replicas that come and go: each is an ordinary run; every H steps they average what they learned
(docs/queue.md)."""
