"""Models of Hugging Face's `transformers`, by name or from a folder, perhaps with LoRA adapters of `peft`.

Nothing is downloaded and no code of a folder is run: a folder holds `config.json` and perhaps `model.safetensors`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotune.errors import UsageError, choices, pip_install
from autotune.reading import SMALL, read_json
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.messages import quiet
from autotune.workloads.capture.user_step import Step
from autotune.workloads.user_code import one_line, users_errors

PREFIX = "hf:"
DEFAULT_SEQUENCE = 128
_LONGEST_SEQUENCE, _HIGHEST_RANK = 1 << 20, 1 << 12
_WEIGHTS = "model.safetensors"
_WRITE = "such as hf:distilbert,seq=128,lora=8"

# Architecture -> what its inputs are, and peft's name of the task.
_KINDS = MappingProxyType(
    {
        "ForCausalLM": ("tokens", "CAUSAL_LM"),
        "LMHeadModel": ("tokens", "CAUSAL_LM"),
        "ForMaskedLM": ("masked tokens", None),
        "ForSequenceClassification": ("classified tokens", "SEQ_CLS"),
        "ForImageClassification": ("classified images", "SEQ_CLS"),
    }
)

_QWEN = {"vocab_size": 151936, "num_key_value_heads": 8, "tie_word_embeddings": True}
_ROPE = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
_TINY = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
NAMED: Mapping[str, tuple[str, str, Mapping[str, Any]]] = MappingProxyType(
    {
        "bert-tiny": ("BertForSequenceClassification", "BertConfig", {
            "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}),
        "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", {}),
        "mobilebert": ("MobileBertForSequenceClassification", "MobileBertConfig", {}),
        "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
        "deit-tiny": ("DeiTForImageClassification", "DeiTConfig", _TINY),
        "vit-tiny": ("ViTForImageClassification", "ViTConfig", _TINY),
        "qwen3-0.6b": ("Qwen3ForCausalLM", "Qwen3Config", {
            **_QWEN, **_ROPE, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
            "num_attention_heads": 16, "head_dim": 128}),
        "qwen2.5-0.5b": ("Qwen2ForCausalLM", "Qwen2Config", {
            **_QWEN, **_ROPE, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
            "num_attention_heads": 14, "num_key_value_heads": 2}),
    }
)  # fmt: skip
"""Model, configuration and the sizes that are not the configuration's own defaults."""


@dataclass(frozen=True)
class HuggingFaceModel:
    """A model as `--model` names it: `hf:NAME[,seq=N][,lora=RANK]`.

    Attributes:
        name: One of `NAMED`, or a folder.
        sequence: Tokens of a sample; None for the default. Images have none.
        rank: Rank of the LoRA adapters of all linear layers but the head; None trains all parameters.
    """

    name: str
    sequence: int | None = None
    rank: int | None = None

    @classmethod
    def parse(cls, text: str) -> HuggingFaceModel:
        """Reads what `str` gives.

        Raises:
            UsageError: A key is unknown or given twice, or a value is no such number.
        """
        name, *pairs = text.removeprefix(PREFIX).split(",")
        limits = {"seq": _LONGEST_SEQUENCE, "lora": _HIGHEST_RANK}
        found: dict[str, int] = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key not in limits or key in found:
                raise UsageError(f"{text}: {pair!r} is no setting of a model", hint=_WRITE)
            if not value.isdecimal() or not 1 <= int(value[:9]) <= limits[key]:
                raise UsageError(
                    f"{text}: {key} is {value[:20]!r}, not a number from 1 to {limits[key]}",
                    hint=_WRITE,
                )
            found[key] = int(value)
        if not name:
            raise UsageError(f"{text!r} names no model", hint=choices(name, NAMED))
        return cls(name, found.get("seq"), found.get("lora"))

    def __str__(self) -> str:
        settings = {"seq": self.sequence, "lora": self.rank}
        given = [f",{key}={value}" for key, value in settings.items() if value is not None]
        return PREFIX + self.name + "".join(given)


def named_with(model: str, sequence: int | None, rank: int | None) -> str:
    """Returns a model's name with the settings of `--seq` and `--lora`.

    Raises:
        UsageError: The model is none of Hugging Face's, or its name has the setting already.
    """
    if sequence is None and rank is None:
        return model
    if not model.startswith(PREFIX):
        raise UsageError(
            f"--seq and --lora go with a model of Hugging Face, and {model} is none",
            hint="such as --model hf:distilbert; a model of your own has its own inputs and adapters",
        )
    found = HuggingFaceModel.parse(model)
    given = {"sequence": sequence, "rank": rank}
    new: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if any(getattr(found, name) is not None for name in new):
        raise UsageError(f"{model} has this setting already", hint="leave --seq or --lora out")
    return str(HuggingFaceModel.parse(str(dataclasses.replace(found, **new))))


def tokenizer_of(model: str) -> Path | None:
    """Returns the `tokenizer.json` in a model's folder, if there is one."""
    if not model.startswith(PREFIX) or (name := HuggingFaceModel.parse(model).name) in NAMED:
        return None
    file = Path(name) / "tokenizer.json"
    return file if file.is_file() else None


def hugging_face_step(reference: str, batch: int) -> Step:
    """Makes the step of a model with random values, or with those of a folder's `model.safetensors`.

    Models of causal language have inputs `input_ids` and `labels`, both `[batch, sequence]`. Models that classify
    tokens have `input_ids`, `attention_mask` and `labels`, those of images `pixel_values` and `labels`.

    Args:
        reference: As `--model` takes it.
        batch: Samples in a step.

    Raises:
        UsageError: A package is missing; there is no such model; its folder cannot be read; it has no loss that
            is known here; or it takes no sequence of this length.
    """
    wanted = HuggingFaceModel.parse(reference)
    transformers = _import("transformers", "transformers>=5.24,<6")
    architecture, config, weights = _configured(wanted.name, transformers)
    kind, task = next(
        ((found) for ending, found in _KINDS.items() if architecture.endswith(ending)), ("", None)
    )
    if not kind:
        raise UsageError(
            f"{wanted.name}: {architecture} has no loss that is known here",
            hint=f"known are models whose names end in {', '.join(_KINDS)}; a factory of your own takes any other",
        )
    with quiet(), users_errors(f"{reference}: making {architecture}", "fix its config.json"):
        made = getattr(transformers, architecture)
        if weights is None:
            module = made(config)
        else:
            module = made.from_pretrained(
                weights.parent, config=config, use_safetensors=True, local_files_only=True
            )
        module = module.float().train()
    if wanted.rank is not None:
        module = _adapted(reference, module, wanted.rank, task)
    return Step(module, _inputs(wanted, kind, config, batch))


def _configured(name: str, transformers: Any) -> tuple[str, Any, Path | None]:
    """The architecture, its configuration, and the file with its values where there is one."""
    if name in NAMED:
        architecture, config, sizes = NAMED[name]
        return architecture, getattr(transformers, config)(**sizes), None
    folder = Path(name)
    file = folder / "config.json"
    if not file.is_file():
        raise UsageError(
            f"{name} is no known model, and no folder with a config.json",
            hint=choices(name, NAMED) + "; or hf:FOLDER",
        )
    found = read_json(file, SMALL)
    listed = found.get("architectures") if isinstance(found, dict) else None
    named = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(named, str) or not named.isidentifier() or not hasattr(transformers, named):
        raise UsageError(
            f"{file} names no architecture of transformers",
            hint='such as "architectures": ["BertModel"]',
        )
    with quiet(), users_errors(f"reading {file}", "fix the file"):
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    weights = folder / _WEIGHTS
    return named, config, weights if weights.is_file() else None


def _adapted(reference: str, module: Any, rank: int, task: str | None) -> Any:
    peft = _import("peft", "peft>=0.21,<1")
    head = ["classifier"] if hasattr(module, "classifier") else None
    with quiet(), users_errors(f"{reference}: adding adapters", "leave --lora out"):
        return peft.get_peft_model(
            module,
            peft.LoraConfig(
                r=rank, lora_alpha=2 * rank, target_modules="all-linear", modules_to_save=head,
                task_type=None if head and task != "SEQ_CLS" else task,
            ),
        )  # fmt: skip


def _inputs(wanted: HuggingFaceModel, kind: str, config: Any, batch: int) -> dict[str, Any]:
    torch = import_torch()
    if kind == "classified images":
        if wanted.sequence is not None:
            raise UsageError(f"{wanted} takes images, not sequences", hint="leave --seq out")
        size = (config.num_channels, config.image_size, config.image_size)
        return {
            "pixel_values": torch.randn(batch, *size),
            "labels": _drawn(config.num_labels, batch),
        }
    sequence = wanted.sequence or DEFAULT_SEQUENCE
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and sequence > longest:
        raise UsageError(
            f"{wanted} takes at most {longest} tokens, not {sequence}", hint=f"give --seq {longest}"
        )
    ids = _drawn(config.vocab_size, batch, sequence)
    if kind == "tokens":
        return {"input_ids": ids, "labels": ids.clone()}
    labels = _drawn(config.num_labels, batch) if kind == "classified tokens" else ids.clone()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def _drawn(count: int, *sizes: int) -> Any:
    """Random whole numbers below a count. The largest is among them: an example tells how many there may be."""
    torch = import_torch()
    drawn = torch.randint(0, count, sizes, generator=torch.Generator().manual_seed(1))
    drawn.view(-1)[-1] = count - 1
    return drawn


def _import(package: str, requirement: str) -> Any:
    try:
        return import_module(package)
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        what = "is not installed" if missing else f"cannot be loaded: {one_line(error)}"
        raise UsageError(
            f"a model of Hugging Face needs {package}, which {what}", hint=pip_install(requirement)
        ) from error
