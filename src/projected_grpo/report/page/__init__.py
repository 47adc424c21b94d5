"""`just report`: one HTML page to mail."""
