"""PASS, FAIL or NOT_EVALUABLE with numbers, from step files alone. No torch."""
