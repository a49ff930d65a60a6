"""Language models that learn a text: tokens of a local tokenizer, perplexity, and the adapter that is written."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import autotune_here

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

WORDS = ["<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz .\n"]
STEP = ("--batch", "2", "--seq", "8", "--lora", "2", "--json")


def tokenizer_file(folder: Path, words: list[str], **changes: Any) -> Path:
    """A tokenizer whose tokens are single characters."""
    known = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[-1])
    )
    known.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    known.add_special_tokens(["<|endoftext|>"])
    content = json.loads(known.to_str()) | changes
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny causal language model and its tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, tie_word_embeddings=True, initializer_range=0.5,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer_file(folder, WORDS)
    return folder


def test_a_text_may_have_more_tokens_than_the_example_labels(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 4 * len(WORDS), "n_embd": 16,
        "n_layer": 1, "n_head": 2, "n_positions": 16, "bos_token_id": 0, "eos_token_id": 0,
    }))  # fmt: skip
    tokenizer_file(tmp_path, [*(f"<{n}>" for n in range(3 * len(WORDS) - 1)), *WORDS[1:], "<?>"])
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat.\n" * 4)
    done = stepped(tmp_path, "--data", text, "--steps", "4")
    assert done.returncode == 0, done.stderr
    assert all(math.isfinite(loss) for loss in json.loads(done.stdout)["losses"])


def stepped(model: Path, *more: str | Path) -> Any:
    return autotune_here("step", "--model", f"hf:{model}", *STEP, *more)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, as peft uses it
def test_a_text_is_learnt_and_its_adapter_is_one_of_peft(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat.\n" * 20)
    adapter = tmp_path / "adapter"
    command = ("--data", text, "--steps", "60", "--optimizer", "adamw:learning_rate=0.05")
    done = stepped(model, *command, "--save-adapter", adapter)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert reported["tokens_per_s"] == pytest.approx(16e3 / reported["step_ms"])
    last = reported["losses"][-6:]
    assert reported["perplexity"] == pytest.approx(math.exp(sum(last) / 6))
    assert reported["perplexity"] < 0.7 * math.exp(reported["losses"][0])
    assert reported["adapter"] == str(adapter)

    base = transformers.Qwen3ForCausalLM.from_pretrained(model)
    ids = torch.tensor([[WORDS.index(c) for c in "the cat "]])
    before = base(input_ids=ids, labels=ids).loss.item()
    learnt = peft.PeftModel.from_pretrained(base, adapter)
    after = learnt(input_ids=ids, labels=ids).loss.item()
    assert after < 0.8 * before
    assert after == pytest.approx(reported["losses"][-1], rel=0.3)
    assert sorted(one.name for one in adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    # A new adapter replaces it; nothing else lies beside.
    again = stepped(model, *command, "--save-adapter", adapter)
    assert again.returncode == 0, again.stderr
    assert {one.name for one in tmp_path.iterdir()} == {"text.txt", "adapter"}


def test_texts_of_json_lines_are_packed_with_an_end_between_them(tmp_path: Path) -> None:
    from autotune.workloads import load_tokens

    file = tmp_path / "texts.jsonl"
    file.write_text(
        "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in ("abc", "", "de"))
    )
    loaded = load_tokens(file, tokenizer_file(tmp_path, WORDS))
    tokens = loaded.sequences(3, len(WORDS))
    numbers = [WORDS.index(one) for one in "abc"] + [0, 0, WORDS.index("d")]
    np.testing.assert_array_equal(tokens, np.array(numbers, np.int32).reshape(2, 3))
    assert len(loaded.sequences(3, len(WORDS), limit=1)) == 1


def test_a_long_text_has_the_same_tokens_in_pieces(tmp_path: Path) -> None:
    from autotune.workloads import load_tokens

    rows = np.random.default_rng(0).integers(1, len(WORDS) - 1, (3000, 50))
    text = "\n".join("".join(WORDS[n] for n in row) for row in rows)
    file = tmp_path / "text.txt"
    file.write_text(text)
    tokens = load_tokens(file, tokenizer_file(tmp_path, WORDS)).sequences(1, len(WORDS))
    assert [WORDS[n] for n in tokens.ravel()] == list(text)


@pytest.mark.parametrize(
    ("text", "words", "changes", "reported"),
    [
        ("abc", WORDS, {}, "fewer than a sequence of 8"),
        ("a" * 99, [*WORDS, "\u00e4"], {"added_tokens": 5}, "is no tokenizer"),
        ("\u00e4" * 99, [*WORDS, "\u00e4"], {}, "has token 30, and the model knows 30"),
        ("a" * 99, WORDS, {"model": {"type": "Unigram"}}, "is no tokenizer"),
        (
            "a" * 1_000_000,
            WORDS,
            {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 1_000_000}},
            "took too much memory",
        ),
        ("a" * 99, WORDS, {"padding": {
            "strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "a"}}, ""),
    ],
)  # fmt: skip
def test_texts_and_tokenizers_that_are_refused(
    model: Path, tmp_path: Path, text: str, words: list[str], changes: dict[str, Any], reported: str
) -> None:
    file = tmp_path / "text.txt"
    file.write_text(text)
    tokenizer = tokenizer_file(tmp_path, words, **changes)
    done = stepped(model, "--data", file, "--tokenizer", tokenizer, "--steps", "4")
    assert done.returncode == (2 if reported else 0), done.stderr
    assert reported in json.loads(done.stdout).get("error", {}).get("message", "")


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("a.jsonl", '{"text": "abc"}\n{"words": "abc"}\n', 'line 2 is no object with a "text"'),
        ("a.jsonl", '{"text": "abc"\n', "line 1 is damaged"),
        ("a.jsonl", "[" * 10_000 + "\n", "line 1 is damaged"),
        ("a.txt", b"\xff\xfe\xff", "UTF-8"),
        ("b.txt", None, "b.txt"),
    ],
)
def test_files_without_texts_are_refused(
    model: Path, tmp_path: Path, name: str, content: str | bytes | None, reported: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    done = stepped(model, "--data", file, "--steps", "4")
    assert done.returncode == 2
    assert reported in json.loads(done.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (("--model", "lenet", "--tokenizer", "t.json"), "--tokenizer goes with a text"),
        (("--model", "lenet", "--data", "a.txt"), "does not take sequences of tokens alone"),
        (("--model", "hf:bert-tiny,seq=8", "--data", "a.txt"), "does not take sequences of tokens"),
        (("--model", "lenet", "--save-adapter", "new"), "lenet has no adapter to save"),
        (("--model", "hf:bert-tiny,seq=8", "--save-adapter", "new"), "has no adapter to save"),
        (("--model", "hf:bert-tiny,seq=8,lora=2", "--save-adapter", "."), "has other files in it"),
        (("--model", "hf:bert-tiny,seq=8,lora=2", "--save-adapter", "a.txt"), "is no folder"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], reported: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("abc")
    done = autotune_here("step", *options, "--batch", "2")
    assert done.returncode == 2
    assert reported in done.stderr
