"""Dumps in Python: what is written is read again, whole shards outlive a killed writer."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fastattnerase as fae
from fastattnerase.dumps.ids import UniqueIds
from fastattnerase.dumps.manifest import JOURNAL, MANIFEST
from fastattnerase.runs.rundir import RunError
from fastattnerase.sources import TensorSource

WEIGHT = torch.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]])


def batch_of(first: int, lengths: tuple[int, ...], **other: object) -> fae.AttentionBatch:
    """Make a batch whose numbers say which instance they are of."""
    ids = torch.arange(first, first + len(lengths))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    of_item = ids.repeat_interleave(torch.tensor(lengths)).float()
    values = of_item[:, None] + torch.tensor([0.25, 0.5, 0.75])
    given = {"scores": of_item / 8, "head_weight": WEIGHT, "ids": ids} | other
    return fae.AttentionBatch(given.pop("values", values), offsets, **given)  # type: ignore[arg-type]


def three() -> list[fae.AttentionBatch]:
    return [batch_of(0, (2, 3)), batch_of(2, (1, 4, 2)), batch_of(5, (3,))]


def read(folder: Path) -> dict[str, Tensor]:
    batches = list(fae.open_batches(folder, verify=True))
    return {
        "values": torch.cat([b.values for b in batches]),
        "lengths": torch.cat([b.lengths for b in batches]),
        "ids": torch.cat([b.ids for b in batches]),
    }


# An instance takes its items' 3 values and score, 16 bytes each, and 24 beside: 56, 72, 40, 88, 56
# and 72. Shards of 4096 bytes for header and head and 130 more hold 2, 2, 2.
SHARD = 4096 + 130


def test_shards_hold_whole_instances_whatever_the_batches(tmp_path: Path) -> None:
    manifest = fae.save_batches(three(), tmp_path / "a", shard_bytes=SHARD)
    assert [(s.first_row, s.instances, s.items) for s in manifest.shards] == [
        (0, 2, 5), (2, 2, 5), (4, 2, 5)
    ]  # fmt: skip
    other = fae.save_batches([fae.AttentionBatch.cat(three())], tmp_path / "b", shard_bytes=SHARD)
    assert [s.sha256 for s in other.shards] == [s.sha256 for s in manifest.shards]
    contents = [(tmp_path / "a" / s.file).read_bytes() for s in manifest.shards]
    assert [s.crc32 for s in manifest.shards] == [f"{zlib.crc32(own):08x}" for own in contents]
    found = read(tmp_path / "a")
    whole = fae.AttentionBatch.cat(three())
    assert torch.equal(found["values"], whole.values)
    assert found["lengths"].tolist() == [2, 3, 1, 4, 2, 3]
    assert found["ids"].tolist() == [0, 1, 2, 3, 4, 5]
    dump = fae.open_batches(tmp_path / "a")
    assert (len(dump), dump.instances, dump.items) == (3, 6, 15)
    assert [batch.ids.tolist() for batch in dump[1:]] == [[2, 3], [4, 5]]
    assert [batch.ids.tolist() for batch in dump[-1]] == [[4, 5]]
    with pytest.raises(IndexError):
        dump[3]


def test_an_instance_longer_than_a_shard_has_one_of_its_own(tmp_path: Path) -> None:
    manifest = fae.save_batches(three(), tmp_path, shard_bytes=1)
    assert [shard.instances for shard in manifest.shards] == [1] * 6


@pytest.mark.parametrize("compact", [False, True])
def test_a_shard_has_at_most_the_bytes_that_are_asked_for(compact: bool, tmp_path: Path) -> None:
    """With a head and names of classes that take most of them, and biases of each instance."""
    classes = tuple(f"Klasse Nr. „{number}“" for number in range(100))
    batch = batch_of(
        0, (1,) * 200, head_weight=torch.ones(100, 3).double(), head_bias=torch.ones(200, 100)
    )
    asked = 2 * (40_000 + 4_000)  # a compact head has 100 x 100 floats, names have the rest
    beside = {"logits": torch.ones(200, 100), "labels": torch.zeros(200)}
    manifest = fae.save_batches(
        [(batch, beside)], tmp_path, shard_bytes=asked, classes=classes, compact=compact
    )
    assert max(shard.bytes for shard in manifest.shards) <= asked
    assert 1 < len(manifest.shards) < 100


def test_instances_have_half_of_a_shard_beside_a_large_head(tmp_path: Path) -> None:
    """A head of 80,000 bytes, or a little more; an instance of 20 items takes 344."""
    head = torch.ones(5000, 3)
    batches = [batch_of(first, (20,) * 100, head_weight=head) for first in range(0, 400, 100)]
    for size in (100_000, 160_000):
        manifest = fae.save_batches(batches, tmp_path / f"{size}", shard_bytes=size)
        assert manifest.shards[0].instances == size // 2 // 344
    manifest = fae.save_batches(batches, tmp_path / "more", shard_bytes=161_000)
    assert manifest.shards[0].instances == (161_000 - 80_000 - 2 - 2048) // 344
    assert max(shard.bytes for shard in manifest.shards) <= 161_000


def test_a_shard_is_a_file_of_erase(tmp_path: Path) -> None:
    beside = {"labels": torch.tensor([1, -1]), "logits": torch.tensor([[0.5, 2.0], [1.0, 0.0]])}
    bias = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    fae.save_batches(
        [(batch_of(7, (2, 3), head_bias=bias), beside)], tmp_path, classes=("bad", "good")
    )
    source = TensorSource(tmp_path / "shard-000000.safetensors")
    [chunk] = source.chunks(0)
    assert source.classes == ["bad", "good"]
    assert chunk.batch.ids.tolist() == [7, 8]
    assert chunk.gold is not None
    assert chunk.model_label is not None
    assert chunk.gold.tolist() == [1, -1]
    assert chunk.model_label.tolist() == [1, 0]
    assert torch.equal(chunk.batch.linear_head[1], bias)
    assert fae.open_batches(tmp_path).manifest.bias_by_instance


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types_are_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]).to(dtype)  # one item of two heads
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 1]), weights=torch.ones(1, 2),
        head_weight=torch.ones(2, 2, 2, dtype=torch.float16),
    )  # fmt: skip
    manifest = fae.save_batches([batch], tmp_path)
    name = str(dtype).partition(".")[2]
    assert (manifest.dtypes["values"], manifest.dtypes["weights"]) == (name, "float32")
    assert (manifest.attention, manifest.inner) == ("weights", (2, 2))
    [found] = fae.open_batches(tmp_path)
    assert torch.equal(found.values, values)


class Stop(Exception):
    """Stands for a writer that is killed."""


def interrupted(after: int) -> Iterator[fae.AttentionBatch]:
    yield from three()[:after]
    raise Stop


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_killed_writer_goes_on_after_the_last_whole_shard(tmp_path: Path, after: int) -> None:
    whole = fae.save_batches(three(), tmp_path / "whole", shard_bytes=SHARD)
    folder = tmp_path / "killed"
    with pytest.raises(Stop):
        fae.save_batches(interrupted(after), folder, shard_bytes=SHARD)
    with pytest.raises(RunError, match="not finished, needed the same command again"):
        fae.open_batches(folder)
    kept = {path.name: path.stat().st_ino for path in folder.glob("shard-*.safetensors")}
    # A last line that was cut, and a file that no line tells of.
    with open(folder / JOURNAL, "a") as journal:
        journal.write('{"file": "shard-0000')
    (folder / "shard-000002.partial").write_bytes(b"half")
    again = fae.save_batches(three(), folder, shard_bytes=SHARD)
    assert again.shards == whole.shards
    assert again.digest == whole.digest
    now = {path.name: path.stat().st_ino for path in folder.glob("shard-*.safetensors")}
    assert kept.items() <= now.items()  # whole shards were not written again
    assert not (folder / JOURNAL).exists()


def test_it_does_not_go_on_with_other_instances_or_options(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        fae.save_batches(interrupted(2), tmp_path, shard_bytes=SHARD)
    for other, told in (
        ({"shard_bytes": 2 * SHARD}, r"options \(shard_bytes\)"),
        ({"compact": True, "made_by": {"name": "x"}}, r"options \(compact, made_by\)"),
    ):
        with pytest.raises(
            RunError, match=f"begun of other instances or with other {told}, needed"
        ):
            fae.save_batches(three(), tmp_path, **({"shard_bytes": SHARD} | other))  # type: ignore[arg-type]
    with pytest.raises(RunError, match="given other ids or lengths than those in shard-000000"):
        fae.save_batches([batch_of(50, (2, 3))], tmp_path, shard_bytes=SHARD)
    other = [batch_of(0, (2, 3), head_weight=-WEIGHT), batch_of(2, (1, 4), head_weight=-WEIGHT)]
    with pytest.raises(RunError, match="given another head than in the shards"):
        fae.save_batches(
            [*other, batch_of(4, (2, 3), head_weight=-WEIGHT)], tmp_path, shard_bytes=SHARD
        )


def test_it_does_not_end_before_the_instances_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        fae.save_batches(interrupted(2), tmp_path, shard_bytes=SHARD)
    assert len(list(tmp_path.glob("shard-*.safetensors"))) == 2
    told = "given 1 instance, needed the 4 of the shards that are there again"
    with pytest.raises(RunError, match=told):
        fae.save_batches([batch_of(0, (2,))], tmp_path, shard_bytes=SHARD)
    again = fae.save_batches(three(), tmp_path, shard_bytes=SHARD)
    assert again.instances == 6


def test_it_goes_on_with_anything_that_json_takes(tmp_path: Path) -> None:
    made_by = {"temperature": float("nan"), "layers": (1, 2), "of": {"7": "ä"}}
    for after in (2, 3):
        with pytest.raises(Stop):
            fae.save_batches(interrupted(after), tmp_path, shard_bytes=SHARD, made_by=made_by)
    manifest = fae.save_batches(three(), tmp_path, shard_bytes=SHARD, made_by=made_by)
    assert manifest.made_by["layers"] == [1, 2]


def test_it_does_not_go_on_with_instances_of_other_lengths(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        fae.save_batches(interrupted(2), tmp_path, shard_bytes=SHARD)
    told = "given other ids or lengths than those in shard-000000"
    with pytest.raises(RunError, match=told):
        fae.save_batches([batch_of(0, (3, 3)), *three()[1:]], tmp_path, shard_bytes=SHARD)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda lines: [*lines[:2], b"{cut and\n", lines[2]], id="no JSON"),
        pytest.param(lambda lines: [*lines[:2], bytes(3) + b"\n"], id="zeros"),
        pytest.param(lambda lines: [*lines, b"\xff\xfe\n"], id="no UTF-8"),
        pytest.param(lambda lines: [*lines[:2], b"[]\n"], id="no record"),
        pytest.param(lambda lines: [b"\n", *lines], id="nothing"),
    ],
)
def test_a_damaged_journal_is_read_as_far_as_it_is_whole(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    whole = fae.save_batches(three(), tmp_path / "whole", shard_bytes=SHARD)
    folder = tmp_path / "killed"
    with pytest.raises(Stop):
        fae.save_batches(interrupted(2), folder, shard_bytes=SHARD)
    journal = folder / JOURNAL
    journal.write_bytes(b"".join(damage(journal.read_bytes().splitlines(keepends=True))))
    assert fae.save_batches(three(), folder, shard_bytes=SHARD).shards == whole.shards


def test_a_damaged_shard_of_a_begun_dump_is_written_again(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        fae.save_batches(interrupted(2), tmp_path, shard_bytes=SHARD)
    path = tmp_path / "shard-000001.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    fae.save_batches(three(), tmp_path, shard_bytes=SHARD)
    assert read(tmp_path)["ids"].tolist() == [0, 1, 2, 3, 4, 5]


def test_shards_of_no_dump_are_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "shard-000007.safetensors"
    path.write_bytes(b"somebody's")
    told = r"given a folder with shard-000007\.safetensors and neither manifest\.json nor"
    with pytest.raises(RunError, match=told):
        fae.save_batches(three(), tmp_path)
    assert path.read_bytes() == b"somebody's"


def test_any_size_may_be_asked_for(tmp_path: Path) -> None:
    assert len(fae.save_batches(three(), tmp_path, shard_bytes=1 << 80).shards) == 1


def test_texts_that_cannot_be_written_are_refused_before_anything_is(tmp_path: Path) -> None:
    for given in ({"classes": ("a", "\udcff")}, {"made_by": {"path": "\udcff"}}):
        with pytest.raises(RunError, match=r"classes, made_by: given '\\udcff', needed texts"):
            fae.save_batches(three(), tmp_path / "dump", **given)  # type: ignore[arg-type]
        assert not (tmp_path / "dump").exists()


def test_contributions_are_smaller_and_decide_alike(tmp_path: Path) -> None:
    full = fae.save_batches(three(), tmp_path / "full")
    compact = fae.save_batches(three(), tmp_path / "compact", compact=True)
    assert (full.near_ties, compact.near_ties) == ("values", "contributions")
    assert (compact.compact, compact.inner, compact.dtypes["values"]) == (True, (2,), "float32")
    [batch] = fae.open_batches(tmp_path / "compact")
    # W h of the first instance, h = (0.25, 0.5, 0.75): 0.25 - 0.75 and 0.125 + 1.
    assert batch.values[0].tolist() == [-0.5, 1.125]
    assert batch.linear_head[0].squeeze(1).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    [own] = fae.open_batches(tmp_path / "full")
    first, second = fae.sweep(own), fae.sweep(batch)
    assert torch.equal(first.prefixes.label, second.prefixes.label)
    assert torch.equal(first.prefixes.first_flip, second.prefixes.first_flip)
    assert first.minimal is not None
    assert second.minimal is not None
    assert torch.equal(first.minimal.size, second.minimal.size)


def test_contributions_of_several_heads(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5, 2, 3, generator=generator)
    weight = torch.randn(4, 2, 3, generator=generator)
    batch = fae.AttentionBatch(
        values, torch.tensor([0, 2, 5]), scores=torch.randn(5, 2, generator=generator),
        head_weight=weight,
    )  # fmt: skip
    fae.save_batches([batch], tmp_path, compact=True)
    [found] = fae.open_batches(tmp_path)
    wanted = torch.einsum("thd,chd->thc", values.double(), weight.double())
    torch.testing.assert_close(found.values.double(), wanted, rtol=0, atol=1e-6)
    logits = [fae.sweep(b, logits=True).prefixes.logits for b in (batch, found)]
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-5)


ONE = batch_of(0, (2,))
REFUSED = {
    "given a callable head, which": [batch_of(0, (2,), head_weight=None, head=lambda c: c)],
    "given a head of one class, needed at least 2": [batch_of(0, (2,), head_weight=WEIGHT[:1])],
    "number 1 and number 0, which have different heads": [
        ONE,
        batch_of(1, (2,), head_weight=-WEIGHT),
    ],
    "number 1 and number 0, which have different dtypes": [
        ONE,
        batch_of(1, (2,), values=torch.ones(2, 3).half()),
    ],
    "have scores and weights": [ONE, batch_of(1, (2,), scores=None, weights=torch.ones(2))],
    "a bias of all instances and biases of each": [
        ONE,
        batch_of(1, (2,), head_bias=torch.ones(1, 2)),
    ],
    "have not the same of labels and logits": [
        ONE,
        (batch_of(1, (2,)), {"labels": torch.tensor([1])}),
    ],
    "ids: given 1 a second time": [batch_of(0, (2, 1)), batch_of(1, (2,))],
    "labels: given 5 for instance 0": [(ONE, {"labels": torch.tensor([5])})],
    r"logits: given \[2, 2\], needed \[1, 2\]": [(ONE, {"logits": torch.ones(2, 2)})],
    "given gold, needed labels or logits": [(ONE, {"gold": torch.ones(1)})],
    "given no instance, needed at least one": [],
    "labels: given list, needed a tensor": [(ONE, {"labels": [1]})],
    "labels: given torch.complex64, needed integers": [(ONE, {"labels": torch.ones(1) * 1j})],
    "labels: given an integer of 9,223,372,036,854,775,808 or more, needed less": [
        (ONE, {"labels": torch.tensor([2**64 - 1], dtype=torch.uint64)})
    ],
    "logits: given torch.bool, needed one of torch.float32, torch.float64": [
        (ONE, {"logits": torch.ones(1, 2) > 0})
    ],
}


def test_a_bias_that_is_no_number_leaves_out_its_instance_alone(tmp_path: Path) -> None:
    bias = torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])
    fae.save_batches([batch_of(0, (2, 3), head_bias=bias)], tmp_path)
    [batch] = fae.open_batches(tmp_path)
    assert batch.head_bias is not None
    assert torch.equal(batch.head_bias.isnan(), torch.tensor([[False, False], [True, False]]))


@pytest.mark.parametrize("told", REFUSED)
def test_what_makes_no_dump_is_refused(tmp_path: Path, told: str) -> None:
    with pytest.raises(RunError, match=told):
        fae.save_batches(REFUSED[told], tmp_path)  # type: ignore[arg-type]


def test_instances_are_numbered_where_asked(tmp_path: Path) -> None:
    batches = [batch_of(0, (2, 1)), batch_of(0, (1,)), batch_of(0, (3, 1))]
    fae.save_batches(batches, tmp_path, renumber=True, shard_bytes=SHARD)
    assert read(tmp_path)["ids"].tolist() == [0, 1, 2, 3, 4]


def test_a_finished_dump_is_not_written_over(tmp_path: Path) -> None:
    fae.save_batches(three(), tmp_path)
    with pytest.raises(RunError, match="given a folder with a finished dump, needed another"):
        fae.save_batches(three(), tmp_path)


def change(folder: Path, **values: object) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_folders_that_are_no_dump_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"given a folder without manifest\.json, needed one that"):
        fae.open_batches(tmp_path)
    with pytest.raises(RunError, match="given no folder"):
        fae.open_batches(tmp_path / "none")
    manifest = fae.save_batches(three(), tmp_path, shard_bytes=SHARD)
    for name in ("..", "a\0b", "\udcff"):
        change(tmp_path, shards=[vars(shard) | {"file": name} for shard in manifest.shards])
        with pytest.raises(RunError, match="needed names of files beside it, each once"):
            fae.open_batches(tmp_path)
    change(tmp_path, shards=list(map(vars, manifest.shards)), format=99)
    with pytest.raises(RunError, match="given format 99, needed 1"):
        fae.open_batches(tmp_path)
    change(tmp_path, format=1, kind="other")
    with pytest.raises(RunError, match="given kind 'other'"):
        fae.open_batches(tmp_path)
    change(tmp_path, kind="fastattnerase dump", instances=7)
    with pytest.raises(RunError, match="given 7 instances and 15 items, needed 6 and 15"):
        fae.open_batches(tmp_path)


def test_shards_that_do_not_fit_the_manifest_are_refused(tmp_path: Path) -> None:
    manifest = fae.save_batches(three(), tmp_path, shard_bytes=SHARD)
    path = tmp_path / manifest.shards[1].file
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + bytes(8))  # of the same length
    with pytest.raises(RunError, match=r"given a file with SHA-256 .* it is damaged"):
        list(fae.open_batches(tmp_path, verify=True))
    path.write_bytes(whole[:-8])
    with pytest.raises(RunError, match=f"given {len(whole) - 8} bytes, needed {len(whole)}"):
        list(fae.open_batches(tmp_path))
    path.write_bytes(whole)
    change(tmp_path, dtypes=manifest.dtypes | {"values": "float16"})
    with pytest.raises(RunError, match=r"dtypes: given .*values float32, needed .*values float16"):
        list(fae.open_batches(tmp_path))
    change(tmp_path, dtypes=manifest.dtypes, head="0" * 64)
    with pytest.raises(RunError, match=r"head: given .*, needed 0000000000000000… as in the"):
        list(fae.open_batches(tmp_path))
    path.unlink()
    change(tmp_path, head=manifest.head)
    with pytest.raises(RunError, match=r"shard-000001\.safetensors: no such file"):
        list(fae.open_batches(tmp_path))


def test_ids_are_kept_as_ranges() -> None:
    ids = UniqueIds()
    for given in ([5, 3, 4], [9], [6, 8], [7], [-1], [0, 2]):
        ids.add(torch.tensor(given).numpy())
    [(first, last)] = ids._runs
    assert (first.tolist(), last.tolist()) == ([-1, 2], [0, 9])
    for twice in ([9], [4], [1, 0], [20, 20], [2**63 - 1, 2]):
        with pytest.raises(RunError, match="a second time"):
            ids.add(torch.tensor(twice).numpy())
    ids.add(torch.tensor([2**63 - 1, -(2**63)]).numpy())
    assert sum(len(run) for run, _ in ids._runs) == 4


def test_ids_in_any_order_are_merged_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 shards; merged with all before at each, an id would be 32 times."""
    merged = 0
    original = np.argsort

    def counting(given: np.ndarray, **options: object) -> np.ndarray:
        nonlocal merged
        merged += len(given)
        return original(given, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(np, "argsort", counting)
    given = np.random.default_rng(0).permutation(6400) * 2  # no two next to each other
    ids = UniqueIds()
    for shard in given.reshape(64, 100):
        ids.add(shard)
    assert 6400 <= merged <= 8 * 6400
    lengths = [len(first) for first, _ in ids._runs]
    assert sum(lengths) == 6400
    assert all(one > 2 * other for one, other in itertools.pairwise(lengths))
    for number in given[::97]:
        with pytest.raises(RunError, match=f"ids: given {number} a second time"):
            ids.add(np.array([-1, number, number + 1, 20_000]))
    ids.add(given + 1)  # joins all: one range
    [(first, last)] = ids._runs
    assert (first.tolist(), last.tolist()) == ([0], [12_799])
