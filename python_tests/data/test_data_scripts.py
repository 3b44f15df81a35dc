"""Texts of a script that the usual rules do not cut are told."""

from __future__ import annotations

import pytest

from fastattnerase.data.config import DataConfig
from fastattnerase.data.scripts import odd_scripts


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A good film, naïve and ėlegant.", None),
        ("", None),
        ("123 :-)", None),
        (
            "我喜欢这部电影。",
            "100 % of the letters of the first training texts are of scripts",
        ),
        ("ฉันชอบหนังเรื่องนี้", "are of scripts that set no spaces"),
        ("Very good 好", None),  # one letter of nine
        ("Хороший фильм.", "100 % of the letters of the first training texts are not Latin"),
        ("영화가 좋다", "are not Latin, and words are cut by English rules"),
    ],
)
def test_scripts(text: str, told: str | None) -> None:
    found = odd_scripts([text], DataConfig())
    assert (told is None) == (found == [])
    if told is not None:
        assert told in found[0]


def test_a_language_that_was_named_is_right() -> None:
    assert odd_scripts(["Хороший фильм."], DataConfig(language="ru")) == []
    assert odd_scripts(["我喜欢这部电影。"], DataConfig(language="zh")) == []
    assert odd_scripts(["我 喜欢 电影"], DataConfig(sentences="spaces")) == []
    assert odd_scripts(["Хороший фильм."], DataConfig(language="xx")) == []
    assert odd_scripts(["我喜欢这部电影。"], DataConfig(language="xx"))  # a sentence is one word
