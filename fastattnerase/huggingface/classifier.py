"""A sequence classifier of Hugging Face's transformers as a model that this package can ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from fastattnerase.batch import AttentionBatch
from fastattnerase.data.dataset import Dataset, DocumentBatch, collate
from fastattnerase.data.documents import Document
from fastattnerase.huggingface.config import TransformerConfig
from fastattnerase.huggingface.families import family_of
from fastattnerase.huggingface.layer import LastLayer, merged, projected
from fastattnerase.huggingface.methods import score
from fastattnerase.huggingface.words import Pieces, fitted
from fastattnerase.models.base import evaluating
from fastattnerase.models.errors import ModelError
from fastattnerase.models.packed import offsets_of
from fastattnerase.plurals import counted
from fastattnerase.saliency.batches import MAX_BYTES, words_in
from fastattnerase.saliency.context import MethodContext, Scored
from fastattnerase.saliency.registry import Method

_TOLERANCE = 1e-5  # of logits that are computed from the last layer's parts
_WASTE = 1.25  # positions of a padded batch, over those that are texts', at most


class TransformerClassifier(nn.Module):
    """A BERT, RoBERTa or DistilBERT classifier whose last layer is erased from.

    Documents are those that `fit` gives: an item is a word of the data, or a piece.

    Args:
        model: a sequence classifier of one of the families, float32 or float64.
        tokenizer: its fast tokenizer.
        config: what an item is.

    Raises:
        ModelError: another architecture, a decoder, fewer than two classes, several labels a text,
            numbers instead of classes, another type than float32 or float64, a slow tokenizer.

    Example:
        >>> from fastattnerase.huggingface import load_transformer
        >>> model = load_transformer("runs/minilm-sst").model  # doctest: +SKIP
        >>> dataset = model.fit(data.encode(examples, model.words))  # doctest: +SKIP
        >>> for batch in model.attention_batches(dataset):  # doctest: +SKIP
        ...     print(batch)
    """

    erases_scores = True

    def __init__(self, model: Any, tokenizer: Any, config: TransformerConfig | None = None) -> None:
        super().__init__()
        self.family = family_of(model.config.model_type)(model)
        if getattr(model.config, "is_decoder", False):
            raise ModelError(
                "transformer: given a decoder (is_decoder), needed an encoder, in which the first "
                "position sees all others"
            )
        if not hasattr(model, "classifier"):
            raise ModelError(
                f"transformer: given {type(model).__name__}, an encoder without a classifier, "
                "needed a sequence classifier; `fastattnerase train --transformer DIR --data …` "
                "makes one"
            )
        if model.config.num_labels < 2:
            raise ModelError(
                f"transformer: given {model.config.num_labels} output, needed at least 2 classes"
            )
        if model.config.problem_type in ("multi_label_classification", "regression"):
            given = "several labels a text" if "multi" in model.config.problem_type else "numbers"
            raise ModelError(f"transformer: given a classifier of {given}, needed one class a text")
        if (dtype := next(model.parameters()).dtype) not in (torch.float32, torch.float64):
            raise ModelError(
                f"transformer: given {dtype}, in which its logits do not come out again to "
                f"{_TOLERANCE}, needed float32: model.float()"
            )
        self.model = model
        self.words = Pieces(tokenizer)
        known = model.get_input_embeddings().num_embeddings
        if len(tokenizer) > known:
            raise ModelError(
                f"tokenizer: given {counted(len(tokenizer), 'piece')}, needed at most {known} as "
                "the model has embeddings: it is another model's"
            )
        self.config = config or TransformerConfig()
        self.num_classes = int(model.config.num_labels)
        if self.limit < 1:
            raise ModelError(
                f"transformer: given at most {self.limit + self.words.special} pieces a text, "
                f"needed at least {self.words.special + 1}, special tokens and a piece of a word "
                "(model_max_length of the tokenizer, positions of the model)"
            )

    @property
    def keeps_last(self) -> bool:
        """Whether the last item of each text stands for its special tokens and is never erased."""
        return self.config.special == "kept"

    @property
    def limit(self) -> int:
        """Pieces of a text, without special tokens, at most."""
        given = self.config.max_pieces
        most = min(self.family.max_positions, int(self.words.tokenizer.model_max_length))
        return (most if given is None else min(given, most)) - self.words.special

    def fit(self, dataset: Dataset) -> Dataset:
        """Make a data set's documents this model's.

        Args:
            dataset: documents, as `data.encode(examples, model.words)` gives them.

        Returns:
            Documents whose `token_ids` are what `words` calls them, cut after `limit` pieces;
            `truncated` counts those. Doing it again changes nothing.

        Raises:
            ModelError: a second text, or a text of special tokens only.
        """
        if self.config.unit == "pieces" and _are_pieces(dataset, self.words, self.limit):
            for document in dataset:
                self.words.require_words(document, document.token_ids.tolist())
            return dataset
        return fitted(dataset, self.words, self.config, self.limit)

    # --- the model as a function of embeddings ---------------------------------------------------

    def embed(self, batch: DocumentBatch) -> Tensor:
        """Look up the vectors of all words' pieces: `[P, E]`, packed, of the model's dtype.

        Args:
            batch: documents of `fit`, on the model's device.
        """
        pieces, _ = self.words.expanded(batch.token_ids)  # [P]
        vectors: Tensor = self.model.get_input_embeddings()(pieces)
        return vectors

    def pieces_of(self, batch: DocumentBatch) -> Tensor:
        """Count the pieces of each text of a batch: `[B]`, int64."""
        _, counts = self.words.expanded(batch.token_ids)  # [T]
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0))  # [T + 1]
        return ends[offsets_of(batch.document_lengths)].diff()

    def size_of(self, document: Document) -> int:
        """Count the positions of a document, special tokens included."""
        pieces = sum(len(self.words.pieces(index)) for index in document.token_ids.tolist())
        return pieces + self.words.special

    def masks(self, document: Document) -> NDArray[np.int64] | None:
        """Give what stands for erased words where erasing masks them; None where it removes."""
        if self.config.erasure == "remove":
            return None
        own = [self.words.masked(index) for index in document.token_ids.tolist()]
        return np.array(own, dtype=np.int64)

    def baseline(self, name: str) -> int:
        """Give the piece that pads (`padding`) or stands for what is unknown (`unknown`).

        Raises:
            ModelError: the tokenizer has none.
        """
        tokenizer = self.words.tokenizer
        found = tokenizer.pad_token_id if name == "padding" else tokenizer.unk_token_id
        if found is None:
            raise ModelError(
                f"baseline: given {name} with {type(tokenizer).__name__}, which has no such token, "
                "needed zero"
            )
        return int(found)

    def scored(
        self,
        method: Method,
        context: MethodContext,
        dataset: Dataset,
        options: Mapping[str, Any],
    ) -> Iterator[Scored]:
        """Score the words of documents by a saliency method: see `methods.score`."""
        return score(self, method, context, dataset, options)

    def logits(self, embeddings: Tensor, batch: DocumentBatch) -> Tensor:
        """Compute the logits `[B, C]` of texts whose pieces have these vectors `[P, E]`.

        Special tokens keep their vectors. Texts of similar length are padded together; padding is
        masked, so that it changes nothing beyond rounding.

        Args:
            embeddings: `[P, E]`, as of `embed`; derivatives go through.
            batch: the documents whose pieces these are.
        """
        lengths = self.pieces_of(batch)  # [B]
        found = [
            (rows, self.model(inputs_embeds=inputs, attention_mask=mask).logits)
            for rows, inputs, mask in self._padded(embeddings, lengths)
        ]
        order = torch.cat([rows for rows, _ in found])
        logits = torch.cat([part for _, part in found])  # [B, C]
        back: Tensor = logits[order.argsort()]
        return back

    def forward(self, batch: DocumentBatch) -> Tensor:
        """Classify documents of `fit`: logits `[B, C]`, the model's dtype."""
        return self.logits(self.embed(batch), batch)

    def _padded(
        self, embeddings: Tensor, lengths: Tensor, most: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pad texts of similar length together.

        Args:
            embeddings: `[P, E]`, of their pieces.
            lengths: `[B]`, pieces of each.
            most: positions of a padded batch, at most; a longer text makes one of its own.

        Yields:
            Which texts, `[b]`; their vectors with those of special tokens, `[b, L, E]`; which of
            these are no padding, `[b, L]`, int64.
        """
        device = embeddings.device
        before, after = len(self.words.before), len(self.words.after)
        special = torch.tensor([*self.words.before, *self.words.after], device=device)
        fixed = self.model.get_input_embeddings()(special)  # [S, E]
        nothing = fixed.new_zeros(1, fixed.shape[1])  # [1, E]
        source = torch.cat([embeddings, fixed, nothing])  # [P + S + 1, E]
        first_special = len(embeddings)
        starts = offsets_of(lengths)[:-1]  # [B]
        for rows in _similar(lengths.tolist(), before + after, most):
            own = torch.tensor(rows, device=device)  # [b]
            n = lengths[own][:, None]  # [b, 1]
            at = torch.arange(int(n.max()) + before + after, device=device)  # [L]
            place = at - before  # [L], among the pieces of a text
            index = starts[own][:, None] + place  # [b, L]
            index = torch.where(place < 0, first_special + at, index)
            index = torch.where(place >= n, first_special + before + place - n, index)
            mask = at < n + before + after  # [b, L]
            index = torch.where(mask, index, len(source) - 1)
            # Sums the gradients of a row in one order, as indexing on several threads does not.
            yield own, embedding(index, source), mask.long()  # [b, L, E]

    # --- the last layer --------------------------------------------------------------------------

    def attention_outputs(
        self,
        dataset: Dataset,
        *,
        batch_tokens: int = 8192,
        max_bytes: int = MAX_BYTES,
        device: torch.device | str | None = None,
        unit: Literal["words", "pieces"] | None = None,
        special: Literal["kept", "items"] | None = None,
    ) -> Iterator[tuple[AttentionBatch, Tensor]]:
        """Stream what the last layer's attention sees at the classifying position.

        `e_{h,i} = q_h · k_{h,i} / √d` from the layer's own projections, whatever computes attention
        in the model. Positions that are erased together are one item, see `layer.merged`. With
        special tokens `kept` all of these are one item, the last of each text.

        Args:
            dataset: documents of `fit`.
            batch_tokens: pieces of a batch that is yielded, at most; a longer text makes a batch of
                its own.
            max_bytes: memory of a pass through the model, estimated. Texts of similar length are
                padded together.
            device: where to compute, the model moves there; default: where the model is.
            unit, special: what an item is, instead of as the model's configuration says.

        Yields:
            A batch with the documents' ids, values `[T, H, d]`, scores `[T, H]` and the rest of
            the layer with the model's head as a callable head; and the model's logits `[B, C]`: of
            the model's dtype and on its device, without gradients.

        Raises:
            ModelError: the logits that come of the layer's parts are not the model's own to 1e-5.
        """
        if device is not None:
            self.to(device)
        on = next(self.model.parameters()).device
        most = words_in(self.model, max_bytes)
        config = replace(
            self.config, unit=unit or self.config.unit, special=special or self.config.special
        )
        for documents in _in_order(dataset, batch_tokens, self.size_of):
            batch = collate(documents).to(on)
            with evaluating(self):
                found = self._attended(batch, most, config)
            yield found

    def attention_batches(self, dataset: Dataset, **options: Any) -> Iterator[AttentionBatch]:
        """Stream what the last layer's attention sees: `attention_outputs` without the logits.

        Args:
            dataset: documents of `fit`.
            options: `batch_tokens`, `max_bytes`, `device`, `unit` and `special`, as there.
        """
        for batch, _ in self.attention_outputs(dataset, **options):
            yield batch

    def _attended(
        self, batch: DocumentBatch, most: int, config: TransformerConfig
    ) -> tuple[AttentionBatch, Tensor]:
        """Take the last layer apart for a batch of texts."""
        embeddings, lengths = self.embed(batch), self.pieces_of(batch)
        own_rows, own_values, own_scores, own_items = [], [], [], []
        residual, logits = [], []
        items, offsets = self._items(batch, config)  # of each position of each text, [B + 1]
        for rows, inputs, mask in self._padded(embeddings, lengths, most):
            states, given = self._states(inputs, mask)  # [b, L, hidden], [b, C]
            values, scores = projected(self.family, states)
            for place, row in enumerate(rows.tolist()):
                n = int(mask[place].sum())
                own_values.append(values[place, :n])
                own_scores.append(scores[place, :n])
                own_items.append(items[row])
            own_rows.append(rows)
            residual.append(states[:, 0])
            logits.append(given)
        back = torch.cat(own_rows).argsort()  # [B]
        whole = torch.cat(logits)[back]  # [B, C]
        values, scores = merged(
            torch.cat(own_values), torch.cat(own_scores), torch.cat(own_items), int(offsets[-1])
        )
        made = AttentionBatch(
            values,
            offsets,
            scores=scores,
            head=LastLayer(self.family, torch.cat(residual)[back]),
            ids=batch.ids,
        )
        self._check(made, whole)
        return made, whole

    def _states(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Run the model: what its last layer is given, `[b, L, hidden]`, and its logits."""
        found: list[Tensor] = []

        def keep(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            found.append(args[0] if args else named["hidden_states"])

        hook = self.family.layer.register_forward_pre_hook(keep, with_kwargs=True)
        try:
            logits = self.model(inputs_embeds=inputs, attention_mask=mask).logits
        finally:
            hook.remove()
        return found[-1], logits

    def _items(
        self, batch: DocumentBatch, config: TransformerConfig
    ) -> tuple[list[Tensor], Tensor]:
        """Say which item each position of each text belongs to; and where texts' items begin."""
        _, counts = self.words.expanded(batch.token_ids)  # [T]
        before, after = len(self.words.before), len(self.words.after)
        keeps, merges = config.special == "kept", config.unit == "words"
        own_items = batch.document_lengths if merges else self.pieces_of(batch)  # [B]
        offsets = offsets_of(own_items + (1 if keeps else before + after))  # [B + 1]
        found = []
        parts = torch.split(counts, batch.document_lengths.tolist())
        for start, own in zip(offsets.tolist(), parts, strict=False):
            device = own.device
            n = len(own) if merges else int(own.sum())
            words = torch.arange(n, device=device)
            if merges:
                words = words.repeat_interleave(own)  # [p]
            if keeps:
                ahead, behind = [torch.full((k,), n, device=device) for k in (before, after)]
            else:
                ahead, words = torch.arange(before, device=device), words + before
                behind = torch.arange(before + n, before + n + after, device=device)
            found.append(start + torch.cat([ahead, words, behind]))
        return found, offsets

    def _check(self, batch: AttentionBatch, logits: Tensor) -> None:
        """Refuse a model whose logits do not come out of its last layer's parts."""
        assert batch.scores is not None
        items = batch.instance_of_item  # [T]
        pooled, _ = merged(batch.values, batch.scores, items, len(batch))  # [B, H, d]
        rows = torch.arange(len(batch), device=batch.device)
        found = batch.call_head(pooled, rows)  # [B, C]
        scale = max(1.0, float(logits.abs().max())) if len(logits) else 1.0
        worst = float((found - logits).abs().max()) if len(logits) else 0.0
        if not worst <= _TOLERANCE * scale:
            raise ModelError(
                f"transformer: given {type(self.model).__name__}, whose logits are {worst:.2g} off "
                f"when they are computed from its last layer's parts, needed at most {_TOLERANCE} "
                f"(of logits up to {scale:.3g})"
            )


def _are_pieces(dataset: Dataset, words: Pieces, limit: int) -> bool:
    """Whether documents have had their words cut into pieces."""
    return all(
        len(document) <= limit
        and words.tokenizer.convert_tokens_to_ids(document.tokens) == document.token_ids.tolist()
        for document in dataset
    )


def _similar(lengths: Sequence[int], special: int, most: int | None) -> Iterator[list[int]]:
    """Cut texts into groups of similar length: lists of their places."""
    group: list[int] = []
    total = 0
    for row in np.argsort(lengths, kind="stable").tolist():
        size = lengths[row] + special  # the largest so far
        padded = size * (len(group) + 1)
        if group and (padded > _WASTE * (total + size) or (most is not None and padded > most)):
            yield group
            group, total = [], 0
        group.append(row)
        total += size
    if group:
        yield group


def _in_order(dataset: Dataset, most: int, size_of: Any) -> Iterator[list[Document]]:
    """Cut documents, in order, into lists of at most so many positions."""
    part: list[Document] = []
    found = 0
    for document in dataset:
        size = size_of(document)
        if part and found + size > most:
            yield part
            part, found = [], 0
        part.append(document)
        found += size
    if part:
        yield part
