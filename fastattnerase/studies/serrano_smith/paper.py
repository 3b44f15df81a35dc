"""Numbers that the paper's text gives, each with its place and its words; every claim is made of
these. Its Table 3 is in `presets`."""

from __future__ import annotations

from typing import NamedTuple


class Number(NamedTuple):
    """A number of the paper.

    Attributes:
        value: as printed.
        place: section and paragraph, or figure.
        words: of the paper, with the number in them.
    """

    value: float
    place: str
    words: str


_TAILS = (
    "the percentage of test instances with a removed fraction above 0.50 for that model is 12.4%, "
    "2.8%, 0.9%, and 0.5%, respectively"
)
_TAILS_PLACE = "figure 6, caption, Amazon FLANnoenc"

NUMBERS = {
    "times": Number(
        1.6,
        "section 5.4, paragraph 2",
        "there were at least 1.6 times as many test instances where the purely gradient-based "
        "ranking managed a decision flip faster than the attention-based ranking than vice versa",
    ),
    "half": Number(
        50,
        "section 5.4, paragraph 2",
        "removing by gradient found a smaller decision-flipping set of items than attention for "
        "over 50% of instances in that model's test set",
    ),
    "half_in": Number(10, "section 5.4, paragraph 2", "For ten of our 16 models with encoders"),
    "half_of": Number(16, "section 5.4, paragraph 2", "For ten of our 16 models with encoders"),
    "tail": Number(0.5, _TAILS_PLACE, _TAILS),
    "tail_random": Number(12.4, _TAILS_PLACE, _TAILS),
    "tail_attention": Number(2.8, _TAILS_PLACE, _TAILS),
    "tail_gradient": Number(0.9, _TAILS_PLACE, _TAILS),
    "tail_product": Number(0.5, _TAILS_PLACE, _TAILS),
    "mass": Number(
        0.25,
        "section A.3, paragraph 2",
        "often shifted down by around 0.25 or more compared to the corresponding attention "
        "probability mass distribution for the attention-based ranking",
    ),
    "rows_in": Number(
        14,
        "section A.3, paragraph 4",
        "this sum is actually lower than for the attention-based ranking's tables in 14 out of our "
        "24 models",
    ),
    "rows_of": Number(
        24,
        "section A.3, paragraph 4",
        "this sum is actually lower than for the attention-based ranking's tables in 14 out of our "
        "24 models",
    ),
}


def printed(name: str) -> str:
    """Write a number of the paper as it stands there.

    >>> printed("times"), printed("rows_of")
    ('1.6', '24')
    """
    return f"{NUMBERS[name].value:g}"
