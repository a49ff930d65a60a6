"""Training data from texts: the tokens of a local tokenizer, packed to sequences.

A tokenizer's file comes from outside, and its rules can ask for any memory and time. So texts are tokenised in a
process of their own, `tokenizing`, with limits on both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.children import run_to_end
from autotune.errors import UsageError, pip_install
from autotune.scratch import Scratch

TEXTS = (".txt", ".jsonl")
"""Endings of the names of files with texts."""
_LIMIT_S = 600.0


def load_tokens(
    path: Path, tokenizer: Path, length: int, vocabulary: int, *, limit: int | None = None
) -> NDArray[np.int32]:
    """Reads a text file as sequences of tokens.

    A ``.jsonl`` file has an object with a ``text`` on each line. The tokens of all texts come one after the other,
    with the tokenizer's end token between texts if it has one, and are cut into sequences. What is left at the end
    is dropped.

    Args:
        path: A ``.txt`` or ``.jsonl`` file in UTF-8, of at most 256 MiB.
        tokenizer: The ``tokenizer.json`` of Hugging Face's ``tokenizers``.
        length: Tokens of a sequence.
        vocabulary: Number of tokens that the model knows.
        limit: Keep at most this many sequences, the first ones; None keeps all.

    Returns:
        Numbers of tokens, [n, length].

    Raises:
        UsageError: The package ``tokenizers`` is missing; a file cannot be read, or is too large; the tokenizer has
            tokens that the model does not know, or takes too much memory or time; or there is no whole sequence.
    """
    if find_spec("tokenizers") is None:
        raise UsageError(
            "texts need tokenizers, which is not installed", hint=pip_install("tokenizers>=0.22")
        )
    work = Scratch("tokens")
    try:
        tokens = _tokenised(path, tokenizer, work.path / "tokens.npy")
    finally:
        work.close()
    if tokens.size and int(tokens.max()) >= vocabulary:
        raise UsageError(
            f"{tokenizer}: {path} has token {int(tokens.max())}, and the model knows {vocabulary}",
            hint="give the tokenizer.json of this model",
        )
    count = len(tokens) // length
    if count == 0:
        raise UsageError(
            f"{path}: has {len(tokens)} tokens, fewer than a sequence of {length}",
            hint="give more text or a smaller --seq",
        )
    kept = count if limit is None else min(count, limit)
    return tokens[: kept * length].reshape(kept, length)


def _tokenised(path: Path, tokenizer: Path, result: Path) -> NDArray[np.int32]:
    program = [sys.executable, "-m", f"{__package__}.tokenizing"]
    try:
        done = run_to_end([*program, path, tokenizer, result], timeout=_LIMIT_S, bound=True)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{tokenizer}: tokenising {path} takes over {_LIMIT_S:.0f} s", hint="give less text"
        ) from None
    if done.returncode == 2:
        raise UsageError(**json.loads(done.stdout))
    if done.returncode != 0:
        raise UsageError(
            f"{tokenizer}: the tokenizer failed on {path}, or took too much memory",
            hint="is it the tokenizer.json of Hugging Face's tokenizers?",
        )
    tokens: NDArray[np.int32] = np.load(result, allow_pickle=False)
    return tokens
