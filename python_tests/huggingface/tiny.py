"""Tiny transformers with random weights of every family, and a tokenizer made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from fastattnerase.data import Dataset, TokenisedText, encode
from fastattnerase.huggingface import TransformerClassifier, TransformerConfig

FAMILIES = ("bert", "roberta", "distilbert")
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
CLASSES = ["bad", "good"]
WORDS = ["good", "bad", "film", "un", "##believ", "##ably", "a", "the", "very", "##s", "dull"]
# Words of one, two and three pieces.
TEXT = ["the", "films", "a", "unbelievably", "good", "film", "bads", "dull"]


def bert_tokenizer() -> Any:
    """Make a WordPiece tokenizer that puts `[CLS]` before a text and `[SEP]` behind it."""
    from transformers import BertTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    vocabulary = {name: index for index, name in enumerate(names)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return BertTokenizerFast(tokenizer_object=made, model_max_length=40)


def roberta_tokenizer() -> Any:
    """Make a byte-level tokenizer that puts `<s>` before a text and `</s>` behind it."""
    from transformers import RobertaTokenizerFast

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("o", "o"), ("f", "i"), ("fi", "l"), ("fil", "m"), ("b", "a"), ("Ġ", "a"), ("t", "h")]
    names += [one + two for one, two in merges]
    vocabulary = {name: index for index, name in enumerate(names)}
    made = Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return RobertaTokenizerFast(tokenizer_object=made, model_max_length=60, add_prefix_space=True)


def tiny_model(
    family: str, tokenizer: Any, *, classes: int = 2, seed: int = 0, layers: int = 2
) -> Any:
    """Make a classifier of few layers and four heads with random weights, larger than usual."""
    import transformers

    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer), "max_position_embeddings": 96, "num_labels": classes,
        "id2label": {c: CLASSES[c] if c < 2 else f"class {c}" for c in range(classes)},
        "label2id": {CLASSES[c] if c < 2 else f"class {c}": c for c in range(classes)},
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    if family == "distilbert":
        config: Any = transformers.DistilBertConfig(
            dim=32, hidden_dim=48, n_heads=4, n_layers=layers, **sizes
        )
        model: Any = transformers.DistilBertForSequenceClassification(config)
    else:
        of = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig}[family]
        config = of(
            hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=layers,
            type_vocab_size=1, **sizes,
        )  # fmt: skip
        made = {
            "bert": transformers.BertForSequenceClassification,
            "roberta": transformers.RobertaForSequenceClassification,
        }[family]
        model = made(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                # Attention that is not even, and embeddings that matter.
                weight.normal_(0, 0.8 if "embeddings" in name else 0.35)
    return model.eval()


def tiny(family: str, config: TransformerConfig | None = None, **options: Any) -> Any:
    """Make a tiny classifier of a family, as the package has it."""
    tokenizer = roberta_tokenizer() if family == "roberta" else bert_tokenizer()
    return TransformerClassifier(tiny_model(family, tokenizer, **options), tokenizer, config)


def texts_of(model: Any, texts: list[list[str]], spans: Any = None) -> Dataset:
    """Make texts of these words a data set of a model; labels alternate."""
    given = [
        TokenisedText(
            row, row % 2, [words] if words else [], [" ".join(words)] if words else [],
            **({} if spans is None or spans[row] is None else {"spans": spans[row]}),
        )
        for row, words in enumerate(texts)
    ]  # fmt: skip
    return model.fit(encode(given, model.words))


def save_tiny(family: str, folder: Path, **options: Any) -> Path:
    """Write a tiny classifier with its tokenizer into a folder, as `save_pretrained` does."""
    tokenizer = roberta_tokenizer() if family == "roberta" else bert_tokenizer()
    tiny_model(family, tokenizer, **options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
