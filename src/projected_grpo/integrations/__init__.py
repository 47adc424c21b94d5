"""The method in somebody else's trainer: this project's runs use nothing of it (docs/integrations.md)."""
