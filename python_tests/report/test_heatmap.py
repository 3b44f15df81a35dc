"""Heat maps of plain data: what is marked, what is told, and that every text is escaped."""

from __future__ import annotations

import json

from report.html_page import Page

from fastattnerase.report.heatmap import HeatMap, Order, render

HOSTILE = ('</script><script>alert("1")</script>', "it's", "<b>&amp;", '"><img src=x>')
CLASSES = ["bad </style>", "good"]


def document(row: int = 0, items: tuple[str, ...] = HOSTILE) -> HeatMap:
    """Four items: attention erases 2, 0 and then flips; the smallest set is item 0 alone."""
    return HeatMap(
        row=row,
        items=items,
        weights=(0.3, 0.0, 0.6, 0.1),
        label=1,
        probability=0.9,
        gold=0,
        orders=(
            Order("attention", (2, 0, 3, 1), 2, 0, (1, 1, 0, 0, 1), (0.9, 0.7, 0.25, 0.4, 0.5),
                  (0.9, 0.7, 0.75, 0.6, 0.5)),
            Order("gradient", (1, 2, 3, 0), -1, -1),
            Order("minimal", (0,), 1, 0),
        ),
    )  # fmt: skip


def words(page: Page) -> list[dict[str, str]]:
    """The items of the documents, without those of the key."""
    return [found for found in page.of("t") if "title" in found]


def test_texts_are_escaped_wherever_they_stand() -> None:
    html = render([document()], CLASSES, looks={"gradient": ("<i>grad</i>", "#d98200")})
    page = Page(html)
    for text in (*HOSTILE, CLASSES[0], "<i>grad</i>"):
        assert text in page.text
    assert set(page.tags) == {
        "style", "script", "div", "p", "span", "label", "input", "button", "output", "article",
        "strong", "ul", "li", "select", "option", "svg", "g", "path", "text", "table", "tbody",
        "tr", "th", "td",
    }  # fmt: skip
    assert page.tags.count("script") == 1
    page.loads_nothing()
    assert page.links == []


def test_shades_bars_and_marks_are_the_documents() -> None:
    page = Page(render([document()], CLASSES))
    # Weights over the largest. Attention erases 2 and then 0: darkness 1 and 1 - 0.8 / 2; gradient
    # never flips, so that it erases all: 1, 0.8, 0.6, 0.4 in its order 1, 2, 3, 0.
    assert [found["style"] for found in words(page)] == [
        "--w:.50;--s1:.60;--s2:.40", "--s2:1.00", "--w:1.00;--s1:1.00;--s2:.80", "--w:.17;--s2:.60",
    ]  # fmt: skip
    assert [found["class"] for found in words(page)] == ["t gone least", "t", "t gone", "t"]
    assert words(page)[0]["title"] == "attention 0.3000"
    told = page.words()
    assert (
        "bad </style>). Erasing 2 of 4 items by attention changes it to bad </style> 0.750; "
        "1 would do." in told
    )
    assert "#0 good 0.900 (labelled bad" in told
    assert "gradientnever" in told.replace(" ", "")
    assert "Strongest background: 0.600" in told


def test_what_the_slider_knows_and_the_curve_that_is_drawn() -> None:
    page = Page(render([document()], CLASSES))
    [article] = page.of("fae-map")
    known = json.loads(article["data-map"])
    assert known["classes"] == CLASSES
    assert known["label"] == 1
    assert known["orders"] == [
        [[2, 0, 3, 1], 2, 0, [[0, 1], [2, 0], [4, 1]], [0.9, 0.7, 0.75, 0.6, 0.5]],
        [[1, 2, 3, 0], -1, -1, [], []],
        [[0], 1, 0, [], []],
    ]
    # 280 by 110: a quarter erased is x = 70, a probability of 0.7 is y = 110 · 0.3.
    [curve] = page.of("fae-curve")
    assert curve["d"] == "M0,11 70,33 140,82.5 210,66 280,55"


def test_documents_beyond_the_limit_are_counted() -> None:
    many = [document(row) for row in range(8)]
    one = len(render(many[:2], CLASSES)) - len(render(many[:1], CLASSES))
    assert len(Page(render(many, CLASSES)).of("fae-map")) == 8
    page = Page(render(many, CLASSES, most_bytes=2 * one))
    assert len(page.of("fae-map")) == 2
    assert "2 of the 8 documents that are kept fit here." in page.text


def test_little_is_known_and_little_is_shown() -> None:
    bare = HeatMap(7, ("a", "b"), (0.0, 0.0), 0, None, ())
    page = Page(render([bare], ["no", "yes"]))
    assert "#7 no." in page.words()
    assert page.of("fae-curve") == []
    assert [found["style"] for found in words(page)] == ["", ""]
    assert Page(render([], ["no"])).of("fae-map") == []


def test_a_long_name_breaks_between_its_words() -> None:
    order = Order("my_module:by<b>", (1, 0), first_flip=1, flip_label=0)
    shown = render([HeatMap(0, ("a", "b"), (0.2, 0.8), 1, 0.9, (order,))], ["bad", "good"])
    assert "my_<wbr>module:<wbr>by&lt;b&gt;</th>" in shown
