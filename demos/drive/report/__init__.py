"""A drive as text, pictures and one HTML page."""
