"""A finished run as a Hugging Face folder: what it trained, a card that says what is known of it, how to load it."""
