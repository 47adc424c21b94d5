"""What stays on disk, and how its numbers are said. No torch."""
