"""What the reports of all studies share: the page, the style of figures, tables as files."""
