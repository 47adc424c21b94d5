"""The small world: a real pre-trained language model that a package registry ships, and short Python tasks."""
