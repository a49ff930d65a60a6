"""Models of Hugging Face by name and from a folder, with LoRA adapters: their steps are PyTorch's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from against_pytorch import compared

from autotune.errors import UsageError
from autotune.workloads.capture import NAMED, load_model, named_with

TOLERANCE = 1e-5
SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 32,
}  # fmt: skip
FOLDERS: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": {"model_type": "bert", **SIZES, "num_labels": 3},
    "RobertaForMaskedLM": {"model_type": "roberta", **SIZES},
    "GPT2LMHeadModel": {
        "model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32,
        "bos_token_id": 0, "eos_token_id": 0,
    },
    "Qwen3ForCausalLM": {
        "model_type": "qwen3", **SIZES, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True,
    },
    "ViTForImageClassification": {
        "model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "image_size": 16, "patch_size": 4,
    },
}  # fmt: skip

QUICK = ("Qwen3ForCausalLM", 2)


def folder(path: Path, architecture: str, **more: Any) -> str:
    path.mkdir(exist_ok=True)
    config = {"architectures": [architecture], **FOLDERS.get(architecture, {}), **more}
    (path / "config.json").write_text(json.dumps(config))
    return f"hf:{path}"


@pytest.mark.parametrize(
    ("model", "sequence", "rank", "name"),
    [
        ("hf:distilbert", 128, 8, "hf:distilbert,seq=128,lora=8"),
        ("hf:distilbert,seq=64", None, 8, "hf:distilbert,seq=64,lora=8"),
        ("hf:gpt2", None, None, "hf:gpt2"),
        ("lenet", None, None, "lenet"),
    ],
)
def test_settings_are_part_of_a_models_name(
    model: str, sequence: int | None, rank: int | None, name: str
) -> None:
    assert named_with(model, sequence, rank) == name
    assert named_with(name, None, None) == name


@pytest.mark.parametrize(
    ("model", "sequence", "rank", "text"),
    [
        ("lenet", 128, None, "go with a model of Hugging Face, and lenet is none"),
        ("net.py:make", None, 8, "go with a model of Hugging Face"),
        ("hf:gpt2,seq=64", 128, None, "has this setting already"),
        ("hf:gpt2", 0, None, "seq is '0', not a number from 1"),
        ("hf:gpt2", None, -1, "lora is '-1', not a number from 1"),
        ("hf:gpt2", None, 10**9, "lora is '1000000000', not a number from 1"),
        ("hf:gpt2,width=3", 128, None, "'width=3' is no setting of a model"),
        ("hf:gpt2,seq=3,seq=4", None, 8, "'seq=4' is no setting of a model"),
        ("hf:", 128, None, "names no model"),
    ],
)
def test_settings_that_make_no_name_are_refused(
    model: str, sequence: int | None, rank: int | None, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        named_with(model, sequence, rank)


@pytest.mark.parametrize(
    ("architecture", "rank"),
    [
        pytest.param(one, rank, marks=() if (one, rank) == QUICK else pytest.mark.slow)
        for one in FOLDERS
        for rank in (None, 2)
    ],
)
def test_the_step_of_a_folders_model_is_pytorchs(
    tmp_path: Path, architecture: str, rank: int | None
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    sequence = None if "Image" in architecture else 12
    name = named_with(folder(tmp_path / "model", architecture), sequence, rank)
    given = load_model(name, 3, 2)
    trained = [name for name, p in given.module.named_parameters() if p.requires_grad]
    assert all("lora_" in one or "modules_to_save" in one for one in trained) == (rank is not None)
    far, graph = compared(given, 2, channels_last=False)
    assert far < TOLERANCE
    assert set(graph.updates) >= {one for one in trained if "lora_" in one}
    if sequence is not None:  # Data may have every token that the model knows, also as labels.
        assert graph.data[0].counts == SIZES["vocab_size"]
        labels = FOLDERS[architecture].get("num_labels", SIZES["vocab_size"])
        assert graph.data[-1].counts == labels
    # The same name with the same seed is the same model, as it was made.
    assert load_model(name, 3, 2) is given


def test_a_folders_values_are_those_of_its_safetensors_file(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    name = folder(tmp_path / "model", "Qwen3ForCausalLM")
    made = transformers.Qwen3ForCausalLM(
        transformers.AutoConfig.from_pretrained(tmp_path / "model")
    )
    made.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").is_file()
    found = load_model(f"{name},seq=12", 1, 2).module
    for path, value in made.state_dict().items():
        assert (found.state_dict()[path] == value).all(), path


@pytest.mark.parametrize(
    ("name", "config", "text"),
    [
        ("hf:gpt3", None, "gpt3 is no known model, and no folder with a config.json"),
        ("hf:{folder}", {"architectures": ["BertModel"], "model_type": "bert"}, "has no loss that is known"),
        ("hf:{folder}", {"architectures": ["os"], "model_type": "bert"}, "names no architecture of transformers"),
        ("hf:{folder}", {"architectures": ["NoSuch"]}, "names no architecture of transformers"),
        ("hf:{folder}", {"architectures": "x"}, "names no architecture of transformers"),
        ("hf:{folder}", [], "names no architecture of transformers"),
        ("hf:{folder}", {"architectures": ["GPT2LMHeadModel"], "model_type": "no"}, "reading .*config.json"),
        ("hf:{folder}", {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": -4}, "making GPT2"),
        ("hf:vit-tiny,seq=4", None, "takes images, not sequences"),
        ("hf:bert-tiny,seq=513", None, "takes at most 512 tokens, not 513"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused(tmp_path: Path, name: str, config: Any, text: str) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=text) as caught:
        load_model(name.format(folder=tmp_path), 1, 2)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_no_code_of_a_folder_is_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n")
    name = folder(
        tmp_path, "GPT2LMHeadModel", model_type="own", auto_map={"AutoConfig": "own.Config"}
    )
    with pytest.raises(UsageError):
        load_model(name, 1, 2)
    assert not (tmp_path / "RAN").exists()


def test_named_models_have_their_published_sizes() -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    millions = {}
    for name, (architecture, config, sizes) in NAMED.items():
        with torch.device("meta"):
            made = getattr(transformers, architecture)(getattr(transformers, config)(**sizes))
        millions[name] = round(made.num_parameters() / 1e6, 1)
    assert millions == {
        "bert-tiny": 4.4, "distilbert": 67.0, "mobilebert": 24.8, "gpt2": 124.4, "deit-tiny": 5.5,
        "vit-tiny": 5.5, "qwen3-0.6b": 596.0, "qwen2.5-0.5b": 494.0,
    }  # fmt: skip
