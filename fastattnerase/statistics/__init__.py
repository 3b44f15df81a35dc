"""Statistics that more than one study uses."""
