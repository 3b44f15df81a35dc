"""Whether texts are of a script that the rules by which words are cut do not know."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from fastattnerase.data.config import DataConfig

_LOOKED_AT = 1000  # texts
_UNSPACED_SHARE, _OTHER_SHARE = 0.2, 0.5  # of the letters
_LATIN = re.compile("[A-Za-z\u00aa-\u024f\u1e00-\u1eff]")
# Thai, Lao, Burmese, Khmer, Japanese, Chinese: nothing stands between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)


def odd_scripts(texts: Iterable[str], config: DataConfig) -> list[str]:
    """Say where words are cut by rules that are not those of the texts' script.

    Texts of a Latin script tell nothing: which language they are in is not guessed.

    Args:
        texts: of the training rows; the first thousand are looked at.
        config: how they are cut.

    Returns:
        A sentence, or none.

    Example:
        >>> odd_scripts(["Хороший фильм."], DataConfig())[0][:50]
        '100 % of the letters of the first training texts a'
        >>> odd_scripts(["Хороший фильм."], DataConfig(language="ru"))
        []
    """
    if config.sentences != "rules" or config.language not in ("en", "xx"):
        return []
    text = "".join(itertools.islice(texts, _LOOKED_AT))
    letters = max(1, sum(map(str.isalpha, text)))
    unspaced = len(_UNSPACED.findall(text)) / letters
    other = 1 - len(_LATIN.findall(text)) / letters
    if unspaced >= _UNSPACED_SHARE:
        return [
            f"{min(unspaced, 1):.0%} of the letters of the first training texts".replace("%", " %")
            + " are of scripts that set no spaces between words, so that much of a sentence is one "
            f"word by the rules of --language {config.language}; name the language, such as "
            "--language zh, or put spaces between words and take --sentences spaces"
        ]
    if config.language == "en" and other >= _OTHER_SHARE and any(map(str.isalpha, text)):
        return [
            f"{other:.0%} of the letters of the first training texts".replace("%", " %")
            + " are not Latin, and words are cut by English rules; name the language, such as "
            "--language ru, or --language xx for none in particular"
        ]
    return []
