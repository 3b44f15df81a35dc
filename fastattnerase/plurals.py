"""How many of what, in words."""


def plural(count: int, thing: str) -> str:
    """Give the noun that follows a count.

    Args:
        count: how many there are.
        thing: what is counted, of one.

    Example:
        >>> f"1 {plural(1, 'row')}, 2 {plural(2, 'row')}, 3 {plural(3, 'class')}"
        '1 row, 2 rows, 3 classes'
    """
    if count == 1:
        return thing
    return f"{thing}es" if thing.endswith(("s", "tch")) else f"{thing}s"


def are(count: int) -> str:
    """Give the verb that follows so many things: `is` or `are`."""
    return "is" if count == 1 else "are"


def have(count: int) -> str:
    """Give the verb that follows so many things: `has` or `have`."""
    return "has" if count == 1 else "have"


def counted(count: int, thing: str) -> str:
    """Write a count with its noun: `1 row`, `2000 rows`."""
    return f"{count} {plural(count, thing)}"
