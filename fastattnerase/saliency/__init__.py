"""Importance of the words of a text by what the whole model makes of them; a file a method."""
