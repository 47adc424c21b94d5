"""A live terminal page of runs, from their files alone."""
