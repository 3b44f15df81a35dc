"""Corpora larger than memory: tokenised once, kept on disk, restartable after each shard."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastattnerase.data.config import DataConfig
from fastattnerase.data.corpus import Row, find_classes, no_rows, read_rows
from fastattnerase.data.dataset import Dataset, PreparedCorpus, count_dropped, cut, load_vectors
from fastattnerase.data.documents import COLUMNS, StoredDocuments, to_lines
from fastattnerase.data.errors import DataError
from fastattnerase.data.examples import NO_LABEL, Example
from fastattnerase.data.queries import LeftOut
from fastattnerase.data.splits import LEFT_OUT, SPLITS, draw_splits
from fastattnerase.data.stored_queries import QueryWriter, columns_beside, pack_beside, words_of
from fastattnerase.data.tokens import tokenise
from fastattnerase.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rich.progress import Progress
else:  # imported where they are used; hints that are read at run time say Any
    Progress = Any

_FORMAT = 1
_DESCRIPTION = "corpus.json"
_OPEN_PARTS = 8  # shards in memory: one a round of a quota draw
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
# Id, sentence lengths, words, sentences, what belongs to it beside, packed (empty without).
_Document = tuple[int, list[int], list[str], list[str], str]


def prepare_stored(
    config: DataConfig,
    folder: str | Path,
    *,
    shard_documents: int = 20_000,
    workers: int = 1,
    progress: Progress | None = None,
) -> PreparedCorpus:
    """Read, split, tokenise and encode a corpus of any size, and keep the result in a folder.

    The result is that of `prepare(load_corpus(config), config)`, but documents are read from disk
    where they are needed. Memory holds a few numbers a row, the distinct words and one shard of
    texts. The same call after an interruption, at any moment, goes on with the whole shards;
    after the end it loads the result.

    Args:
        config: files, columns, splits and options.
        folder: a folder for this corpus alone, made where it is missing.
        shard_documents: documents of a shard.
        workers: processes that tokenise, each a shard; the result is the same.
        progress: where to show progress; default: nowhere.

    Returns:
        The corpus; its documents are `StoredDocuments`.

    Raises:
        DataError: as `load_corpus`; also a folder that holds another corpus.

    Example:
        >>> prepared = prepare_stored(config, "runs/amazon/data")  # doctest: +SKIP
        >>> len(prepared.train)  # doctest: +SKIP
        2700000
    """
    folder = Path(folder)
    identity = _identity(config)
    path = folder / _DESCRIPTION
    if not path.exists():
        _Preparation(config, folder, identity, shard_documents, workers, progress).run()
    try:
        description = json.loads(path.read_bytes())
        if description["identity"] != identity:
            raise DataError(
                f"{folder} holds a corpus of other files or options; choose another folder, or "
                "delete this one to prepare it anew"
            )
        vocabulary = Vocabulary.from_dict(description["vocabulary"])
        splits = {
            split: Dataset(StoredDocuments(folder / split), *description["counts"][split])
            for split in SPLITS
        }
    except (KeyError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is damaged ({error})") from error
    embeddings, found = load_vectors(config, vocabulary)
    return PreparedCorpus(
        vocabulary,
        embeddings,
        found,
        **splits,
        classes=description["classes"],
        dropped=description["dropped"],
    )


def _identity(config: DataConfig) -> dict[str, Any]:
    """What must be the same for a corpus on disk to be the one asked for."""
    values = config.to_dict()
    for name in ("vectors", "unit_vectors"):  # read at each load
        del values[name]
    files = {}
    for name in filter(None, (config.path, config.train, config.dev, config.test)):
        path = Path(name)
        for member in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if member.is_file():
                state = member.stat()
                files[str(member)] = [state.st_size, state.st_mtime_ns]
    return {"format": _FORMAT, "config": values, "files": files}


class _Rows(NamedTuple):
    """What is kept of every row."""

    ids: Ints
    labels: list[str]  # strings shared between rows
    given: Ints
    dropped: LeftOut


class _Part(NamedTuple):
    """Tokenised documents with their own list of words: a shard."""

    ids: Ints  # [B]
    lengths: Ints  # [S], words of each sentence
    counts: Ints  # [B], sentences of each document
    words: Ints  # [T], indices into `forms`
    forms: list[str]  # distinct words, in the case of the text
    texts: list[str]  # [S]
    queries: list[str]  # [B], what belongs to each beside its text, packed; empty without
    sentence_ends: Ints  # [B]
    word_ends: Ints  # [S]

    @classmethod
    def of(
        cls,
        ids: Ints,
        lengths: Ints,
        counts: Ints,
        words: Ints,
        forms: list[str],
        texts: list[str],
        queries: list[str],
    ) -> _Part:
        ends = np.cumsum(counts), np.cumsum(lengths)
        return cls(ids, lengths, counts, words, forms, texts, queries, *ends)

    def sentence_lengths(self, index: int) -> list[int]:
        end = self.sentence_ends[index]
        return self.lengths[end - self.counts[index] : end].tolist()  # type: ignore[no-any-return]

    def document(self, index: int) -> tuple[list[int], list[str], list[str], str]:
        """Give the sentence lengths, words, sentences and packed query of a document."""
        end = int(self.sentence_ends[index])
        begin = end - int(self.counts[index])
        lengths = self.lengths[begin:end].tolist()
        last = int(self.word_ends[end - 1]) if end else 0
        words = [self.forms[form] for form in self.words[last - sum(lengths) : last].tolist()]
        query = self.queries[index] if self.queries else ""
        return lengths, words, self.texts[begin:end], query


def _make_part(path: Path, rows: Sequence[Row], config: DataConfig) -> None:
    """Tokenise the texts of a shard and write it."""
    forms: dict[str, int] = {}
    ids, lengths, counts, words, texts, queries = [], [], [], [], [], []
    beside = bool(columns_beside(config))
    examples = (Example(row.id, row.text, NO_LABEL, row.query, None, row.spans) for row in rows)
    for row, text in zip(rows, tokenise(examples, **config.tokenisation), strict=True):
        ids.append(text.id)
        counts.append(len(text.sentences))
        lengths += [len(sentence) for sentence in text.sentences]
        words += [forms.setdefault(w, len(forms)) for s in text.sentences for w in s]
        texts += text.sentence_texts
        if beside:
            queries.append(pack_beside(row, text))
    arrays = [np.array(values, dtype=np.int64) for values in (ids, lengths, counts, words)]
    numbers = arrays[0], arrays[1], arrays[2], arrays[3]
    _write_part(path, _Part.of(*numbers, list(forms), texts, queries))


def _write_part(path: Path, part: _Part) -> None:
    partial = path.with_suffix(".partial")
    text = {"forms": part.forms, "texts": part.texts, "queries": part.queries}
    arrays: dict[str, Any] = {
        name: getattr(part, name) for name in ("ids", "lengths", "counts", "words")
    }
    arrays |= {name: np.frombuffer(to_lines(x), dtype=np.uint8) for name, x in text.items() if x}
    with open(partial, "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _read_part(path: Path) -> _Part:
    with np.load(path, allow_pickle=False) as file:
        text = [
            file[name].tobytes().decode("utf-8", "surrogatepass").split("\n")[:-1]
            if name in file
            else []  # shards without queries
            for name in ("forms", "texts", "queries")
        ]
        return _Part.of(file["ids"], file["lengths"], file["counts"], file["words"], *text)


class _Column:
    """An array of unknown length, written as it grows; a `.npy` file at the end."""

    def __init__(self, path: Path, dtype: type[np.generic]) -> None:
        self.path = path
        self.raw = path.with_suffix(".raw")
        self.dtype = np.dtype(dtype)
        self.file = open(self.raw, "wb")  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> _Column:
        return self

    def append(self, values: Sequence[int] | Array) -> None:
        self.file.write(np.asarray(values, dtype=self.dtype).tobytes())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        length = self.file.tell() // self.dtype.itemsize
        self.file.close()
        if kind is None:
            header = {"descr": self.dtype.str, "fortran_order": False, "shape": (length,)}
            with open(self.path, "wb") as file, open(self.raw, "rb") as raw:
                np.lib.format.write_array_header_1_0(file, header)
                shutil.copyfileobj(raw, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
        self.raw.unlink()


class _Preparation:
    def __init__(
        self,
        config: DataConfig,
        folder: Path,
        identity: dict[str, Any],
        shard_documents: int,
        workers: int,
        progress: Progress | None,
    ) -> None:
        for name, value in (("shard_documents", shard_documents), ("workers", workers)):
            if value < 1:
                raise DataError(f"{name}: given {value}, needed at least 1")
        self.workers = workers
        self.config = config
        self.folder = folder
        self.identity = identity
        self.shard_documents = shard_documents
        self.progress = progress
        key = json.dumps([identity, shard_documents], sort_keys=True).encode()
        # Shards of other files or options are in another folder, and never mixed up.
        self.shards = folder / f"shards-{blake2b(key, digest_size=8).hexdigest()}"
        self.parts: list[Path] = []
        self.ids = np.zeros(0, dtype=np.int64)  # rows of all shards, ascending in each round
        self.part = np.zeros(0, dtype=np.int64)  # and their shards
        self.place = np.zeros(0, dtype=np.int64)  # and places in those
        self.too_long: set[int] = set()  # rows beyond a length limit
        self.open_parts: OrderedDict[int, _Part] = OrderedDict()

    def run(self) -> None:
        self.shards.mkdir(parents=True, exist_ok=True)
        rows = self._scan()
        if not len(rows.ids):
            raise no_rows(self.config, rows.dropped)
        drawn = draw_splits(
            rows.ids, rows.labels, rows.given, self.config, lambda i: self._fits(rows.ids[i])
        )
        rows.dropped["beyond_quota"] += int((drawn == LEFT_OUT).sum())
        if not (drawn == 0).any():
            raise no_rows(self.config, rows.dropped)
        classes = find_classes(
            (label for label, split in zip(rows.labels, drawn, strict=True) if split == 0),
            self.config,
        )
        known = {label: index for index, label in enumerate(classes)}
        unknown = sorted(
            {x for x, d in zip(rows.labels, drawn, strict=True) if d >= 0} - set(known)
        )
        if unknown and self.config.query_column is not None:
            unseen = np.array([label not in known for label in rows.labels]) & (drawn >= 0)  # [B]
            rows.dropped["unseen_answer"] = int(unseen.sum())
            drawn[unseen] = LEFT_OUT
        elif unknown:
            raise DataError(
                f"dev and test rows: given labels {', '.join(map(repr, unknown))}, needed the "
                f"training rows' classes, {', '.join(map(repr, classes))}"
            )
        self._tokenise(rows.ids[drawn >= 0])
        self._finish(rows, drawn, classes)

    def _scan(self) -> _Rows:
        dropped = LeftOut()
        ids, labels, given = [], [], []
        shared: dict[str, str] = {}
        for row in self._track(read_rows(self.config, dropped), "reading rows", None):
            ids.append(row.id)
            labels.append(shared.setdefault(row.label, row.label))
            given.append(SPLITS.index(row.split))
        as_array = [np.array(values, dtype=np.int64) for values in (ids, given)]
        return _Rows(as_array[0], labels, as_array[1], dropped)

    def _track(self, items: Iterator[Any], what: str, total: int | None) -> Iterator[Any]:
        if self.progress is None:
            yield from items
        else:
            yield from self.progress.track(items, total=total, description=what)

    def _fits(self, ids: Ints) -> npt.NDArray[np.bool_]:
        self._tokenise(ids)
        return np.array([row not in self.too_long for row in ids.tolist()], dtype=bool)

    def _tokenise(self, ids: Ints) -> None:
        """Tokenise the rows that are not yet, into shards; whole shards on disk are kept."""
        wanted = np.setdiff1d(ids, self.ids).tolist()
        first = len(self.parts)
        chunks = [
            wanted[start : start + self.shard_documents]
            for start in range(0, len(wanted), self.shard_documents)
        ]
        paths = [self.shards / f"{first + number:06d}.npz" for number in range(len(chunks))]
        pairs = zip(chunks, paths, strict=True)
        left = [(chunk, path) for chunk, path in pairs if not path.exists()]
        remaining = {row for chunk, _ in left for row in chunk}
        if remaining:
            rows = (row for row in read_rows(self.config, LeftOut()) if row.id in remaining)
            tracked = self._track(rows, "tokenising", len(remaining))
            jobs = ((path, list(itertools.islice(tracked, len(chunk)))) for chunk, path in left)
            if self.workers == 1:
                for path, part in jobs:
                    _make_part(path, part, self.config)
            else:
                self._in_processes(jobs)
        for path in paths:
            self._register(path)

    def _in_processes(self, jobs: Iterator[tuple[Path, list[Row]]]) -> None:
        # Fresh processes: a fork would copy locks that other threads hold.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.workers, mp_context=context) as pool:
            running: set[Future[None]] = set()
            for path, part in jobs:
                running.add(pool.submit(_make_part, path, part, self.config))
                if len(running) > self.workers:  # texts in memory: one shard more than workers
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in running:
                future.result()

    def _register(self, path: Path) -> None:
        part = _read_part(path)
        number = np.full(len(part.ids), len(self.parts), dtype=np.int64)
        self.parts.append(path)
        self.ids = np.concatenate([self.ids, part.ids])
        self.part = np.concatenate([self.part, number])
        self.place = np.concatenate([self.place, np.arange(len(part.ids))])
        if self.config.length_limited:
            for index, row in enumerate(part.ids.tolist()):
                if not self.config.fits(part.sentence_lengths(index)):
                    self.too_long.add(row)

    def _documents(self, ids: Ints) -> Iterator[_Document]:
        """Give the id, sentence lengths, words, sentences and packed query of documents."""
        order = np.argsort(self.ids, kind="stable")
        found = order[np.searchsorted(self.ids, ids, sorter=order)]
        places = zip(
            ids.tolist(), self.part[found].tolist(), self.place[found].tolist(), strict=True
        )
        for row, number, place in places:
            if number not in self.open_parts:
                if len(self.open_parts) == _OPEN_PARTS:
                    self.open_parts.popitem(last=False)
                self.open_parts[number] = _read_part(self.parts[number])
            self.open_parts.move_to_end(number)
            yield row, *self.open_parts[number].document(place)

    def _finish(self, rows: _Rows, drawn: Ints, classes: list[str]) -> None:
        """Collect the vocabulary, write the splits, and last of all say that they are there."""
        config = self.config
        too_long = dict.fromkeys(SPLITS, 0)
        chosen: dict[str, Ints] = {}
        for index, split in enumerate(SPLITS):
            ids = rows.ids[drawn == index]
            kept = np.ones(len(ids), dtype=bool)
            if split in config.limited_splits:
                kept = np.array([row not in self.too_long for row in ids.tolist()], dtype=bool)
            chosen[split] = ids[kept]
            too_long[split] = int((~kept).sum())
        seen = (
            words + words_of(query)
            for split in SPLITS[:2]
            for _, _, words, _, query in self._documents(chosen[split])
        )
        total = len(chosen["train"]) + len(chosen["dev"])
        vocabulary = Vocabulary.build(
            self._track(seen, "counting words", total),
            min_count=config.min_count,
            lower_case=config.lower_case,
        )
        known = {label: index for index, label in enumerate(classes)}
        label_of = {  # rows left out can have a label that is no class
            row: known.get(label, NO_LABEL)
            for row, label in zip(rows.ids.tolist(), rows.labels, strict=True)
        }
        counts: dict[str, list[int | str]] = {}
        for split in SPLITS:
            documents = self._documents(chosen[split])
            tracked = self._track(documents, f"encoding {split}", len(chosen[split]))
            truncated, of_spans = self._write_split(split, tracked, vocabulary, label_of, known)
            counts[split] = [truncated, too_long[split], *of_spans]
        description = {
            "identity": self.identity,
            "classes": classes,
            "dropped": count_dropped(+rows.dropped, too_long),
            "counts": counts,
            "vocabulary": vocabulary.to_dict(),
        }
        partial = self.folder / f"{_DESCRIPTION}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(description, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.folder / _DESCRIPTION)
        shutil.rmtree(self.shards)

    def _write_split(
        self,
        split: str,
        documents: Iterator[_Document],
        vocabulary: Vocabulary,
        label_of: dict[int, int],
        classes: dict[str, int],
    ) -> tuple[int, tuple[int, int, str] | tuple[()]]:
        """Write one split; give how many documents were cut, and what became of spans."""
        folder = self.folder / split
        folder.mkdir(exist_ok=True)
        truncated = 0
        ends = dict.fromkeys(("document", "sentence", "word_text", "text"), 0)
        beside = columns_beside(self.config)
        with contextlib.ExitStack() as stack:
            column = {
                name: stack.enter_context(_Column(folder / f"{name}.npy", dtype))
                for name, dtype in (COLUMNS | beside).items()
            }
            queries = QueryWriter(vocabulary, classes, {name: column[name] for name in beside})
            for row, lengths, words, texts, query in documents:
                kept = cut(lengths, self.config.max_tokens)
                truncated += sum(kept) < len(words)
                words, texts = words[: sum(kept)], texts[: len(kept)]
                lines, sentences = to_lines(words), to_lines(texts)
                ends["document"] += len(words)
                ends["sentence"] += len(kept)
                ends["word_text"] = ends["text"] + len(lines)
                ends["text"] = ends["word_text"] + len(sentences)
                column["ids"].append([row])
                column["labels"].append([label_of[row]])
                column["token_ids"].append(vocabulary.indices(words))
                column["sentence_lengths"].append(kept)
                column["text"].append(np.frombuffer(lines + sentences, dtype=np.uint8))
                for name, end in ends.items():
                    column[f"{name}_ends"].append([end])
                if query:
                    queries.write(row, query, len(words))
        return truncated, queries.of_spans if beside else ()
