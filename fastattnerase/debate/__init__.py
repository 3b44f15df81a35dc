"""Both sides of the debate on attention, asked of anyone's two-class text."""
