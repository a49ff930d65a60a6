"""Training data from texts: the tokens of a local tokenizer, packed to sequences.

A tokenizer's file comes from outside, and its rules can ask for any memory and time. So texts are tokenised in a
process of their own, `tokenizing`, with limits on both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text.

    Attributes:
        numbers: All tokens, [n].
        path: The text.
        tokenizer: The tokenizer's file.
    """

    numbers: NDArray[np.int32]
    path: Path
    tokenizer: Path

    def sequences(
        self, length: int, vocabulary: int, *, limit: int | None = None
    ) -> NDArray[np.int32]:
        """Cuts the tokens into sequences. What is left at the end is dropped.

        Args:
            length: Tokens of a sequence.
            vocabulary: Number of tokens that the model knows.
            limit: Keep at most this many sequences, the first ones; None keeps all.

        Returns:
            Numbers of tokens, [count, length].

        Raises:
            UsageError: The text has tokens that the model does not know, or no whole sequence.
        """
        if self.numbers.size and int(self.numbers.max()) >= vocabulary:
            raise UsageError(
                f"{self.tokenizer}: {self.path} has token {int(self.numbers.max())}, and the model knows "
                f"{vocabulary}",
                hint="give the tokenizer.json of this model",
            )
        count = len(self.numbers) // length
        if count == 0:
            raise UsageError(
                f"{self.path}: has {len(self.numbers)} tokens, fewer than a sequence of {length}",
                hint="give more text or a smaller --seq",
            )
        kept = count if limit is None else min(count, limit)
        return self.numbers[: kept * length].reshape(kept, length)


def load_tokens(path: Path, tokenizer: Path) -> Tokens:
    """Tokenises a text file.

    A ``.jsonl`` file has an object with a ``text`` on each line. The tokens of all texts come one after the other,
    with the tokenizer's end token between texts if it has one.

    Args:
        path: A ``.txt`` or ``.jsonl`` file in UTF-8, of at most 256 MiB.
        tokenizer: The ``tokenizer.json`` of Hugging Face's ``tokenizers``.

    Raises:
        UsageError: The package ``tokenizers`` is missing; a file cannot be read, or is too large; or the tokenizer
            takes too much memory or time.
    """
    if find_spec("tokenizers") is None:
        raise UsageError(
            "texts need tokenizers, which is not installed", hint=pip_install("tokenizers>=0.22")
        )
    work = Scratch("tokens")
    try:
        return Tokens(_tokenised(path, tokenizer, work.path / "tokens.npy"), path, tokenizer)
    finally:
        work.close()


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
