"""The method in somebody else's trainer: nothing here is used by this project's own runs (docs/integrations.md)."""
