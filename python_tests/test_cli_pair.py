"""The command line on two texts: a model of kind pair is trained, erased from, measured, shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import invoke, one_line

import fastattnerase as fae
from fastattnerase.studies.serrano_smith.result import load

PEOPLE = ("mary", "john", "sandra")
PLACES = ("garden", "office", "hall")
TINY = (
    "--encoder=mlp",
    "--embedding-size=6",
    "--hidden-size=4",
    "--epochs=2",
    "--batch-size=16",
    "--learning-rate=0.05",
    "--dropout-embedding=0",
    "--dropout-output=0",
)
COLUMNS = (
    "--text-column=story",
    "--query-column=question",
    "--answers-column=options",
    "--label-column=answer",
)


def rows(count: int = 60) -> list[dict[str, str]]:
    found = []
    for i in range(count):
        one, other = PEOPLE[i % 3], PEOPLE[(i + 1) % 3]
        place, elsewhere = PLACES[i // 3 % 3], PLACES[i // 9 % 3]
        found.append(
            {
                "story": f"{one} went to the {place} {other} to the {elsewhere}",
                "question": f"where is {one}",
                "answer": place,
                "options": f"{place};{elsewhere}",
            }
        )
    return found


def write(path: Path, content: list[dict[str, str]]) -> Path:
    path.write_text("\n".join(map(json.dumps, content)))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    odd = [{**rows()[0], "question": " "}, {**rows()[0], "options": "office"}]
    data = write(folder / "stories.jsonl", [*rows(), *odd])
    for decoder in ("tanh", "query"):
        found = invoke(
            "train", "--data", data, *COLUMNS, *TINY, "--decoder", decoder,
            "--out", folder / decoder,
        )  # fmt: skip
        told = " ".join(found.stdout.split())
        assert "1 row left out: empty query" in told
        assert "row 61: given a query without words, needed some" in told
        assert "1 row left out: answer not allowed" in told
        assert "row 62: given label 'garden', needed one of the 1 answer" in told
    return folder


def test_erasing_and_reporting_without_smallest_sets(trained: Path) -> None:
    told = " ".join(invoke("erase", "--model", trained / "tanh", "--resamples", 20).stdout.split())
    reason = "Smallest sets are not known: the model’s decoder, tanh, is not linear"
    assert reason in told
    result = load(trained / "tanh" / "erase")
    assert "minimal" not in result.multi
    assert result.counts.analysed == result.counts.instances > 0
    assert result.counts.label_differs_from_model == 0
    assert result.run.source["data"]["query_column"] == "question"
    assert result.run.source["model_config"]["decoder"] == "tanh"
    invoke("report", trained / "tanh" / "erase", "--out", trained / "tanh" / "report")
    page = (trained / "tanh" / "report" / "report.html").read_text()
    assert reason in page
    assert "for “where is " in page  # beside each decision, what was asked


def test_erasing_with_the_query_in_the_bias(trained: Path) -> None:
    asked = [{**row, "asked": row["question"]} for row in rows(9)]
    new = write(trained / "new.jsonl", [*asked, {**asked[0], "answer": "moon", "options": "moon"}])
    told = invoke(
        "erase", "--model", trained / "query", "--data", new, "--query-column", "asked",
        "--resamples", 20,
    ).stdout  # fmt: skip
    assert "new.jsonl, row 10: given label 'moon', needed one that a training row has" in told
    result = load(trained / "query" / "erase-new")
    assert "minimal" in result.multi
    assert result.counts.instances == 9
    assert result.counts.label_differs_from_model == 0
    assert result.run.source["data"]["query_column"] == "asked"


@pytest.mark.parametrize("decoder", ["tanh", "query"])
def test_measuring(trained: Path, decoder: str) -> None:
    told = invoke(
        "measure", "--model", trained / decoder, "--clusters", 2, "--shuffles", 0,
        "--permutations", 1, "--kmeans-seeds", 1,
    ).stdout  # fmt: skip
    assert "weights permuted 1 times" in " ".join(told.split())


def test_explaining(trained: Path) -> None:
    found = fae.explain(
        trained / "tanh",
        ["mary went to the garden", ["john", "in", "the", "hall"]],
        queries=["Where is Mary?", ["where", "is", "john"]],
    )
    assert [len(text) for text in found] == [5, 4]
    assert found[0].smallest is None
    assert not found[0].searched
    assert found[0].notes[-1].startswith("no smallest set is searched: a callable head")
    assert "smallest set: not known" in repr(found[0])
    assert found[0].decision in PLACES
    assert found[0].query == "Where is Mary ?"
    assert fae.explain(trained / "query", ["mary went"], queries="where is mary")[0].searched
    with pytest.raises(ValueError, match="queries: given none, needed one for each text"):
        fae.explain(trained / "tanh", ["mary"])
    with pytest.raises(ValueError, match="queries: given 2, needed 1"):
        fae.explain(trained / "tanh", ["mary"], queries=["a", "b"])
    with pytest.raises(TypeError, match="queries: given 3 as number 0, needed a string or a list"):
        fae.explain(trained / "tanh", ["mary"], queries=[3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "pair"), "--model: given pair without --query-column, needed with it"),
        (("--decoder", "query"), "--decoder: given query without --query-column, needed with it"),
        (
            ("--model", "han", "--query-column", "question"),
            "--model: given han with --query-column, needed pair, which reads two texts",
        ),
        (
            ("--head", "sigmoid", "--query-column", "question"),
            "--head: given sigmoid with kind pair, needed softmax",
        ),
        (
            ("--query-column", "asked"),
            "line 1 has no column 'asked'; its columns are 'story', 'question', 'answer', "
            "'options'; name the columns as --text-column and --label-column and --query-column",
        ),
        (("--answers-column", "options"), "--answers-column: given 'options' without query_column"),
        (("--cnn-widths", "1,4"), "--cnn-widths: given (1, 4), needed at least one odd number"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    data = write(tmp_path / "stories.jsonl", rows(6))
    columns = ("--text-column=story", "--label-column=answer", "--out", tmp_path / "out")
    told = one_line("train", "--data", data, *columns, *arguments)
    assert message in told


def test_a_query_column_for_a_model_of_one_text(tmp_path: Path) -> None:
    data = write(tmp_path / "stories.jsonl", rows(30))
    invoke(
        "train", "--data", data, "--text-column=story", "--label-column=answer", *TINY,
        "--epochs=1", "--out", tmp_path / "one",
    )  # fmt: skip
    told = one_line("erase", "--model", tmp_path / "one", "--data", data, "--query-column=question")
    assert "--query-column: given 'question' with a model of kind flan, needed one of kind" in told
