"""Program that tokenises a text file: TEXT TOKENIZER RESULT. It limits its own memory, and runs without threads.

It ends with 2 and one JSON object, `message` and `hint`, if a file is refused.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, UsageError
from autotune.reading import DOCUMENT, LINES, Unreadable, lines, open_file, parse_json, read_text

_MEMORY_BYTES = 4 << 30
_TEXT = replace(DOCUMENT, bytes=256 << 20)
_PIECE = (
    1 << 16
)  # Characters that are tokenised at once: a token takes a hundred bytes until it is a number.
_END_TOKENS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[SEP]")


def _texts(path: Path) -> Iterator[str]:
    """Yields the texts of a file."""
    if path.suffix.lower() != ".jsonl":
        yield read_text(path, _TEXT)
        return
    with open_file(path) as file:
        try:
            for number, line in lines(file, replace(LINES, bytes=_TEXT.bytes)):
                text = line.get("text") if isinstance(line, dict) else None
                if not isinstance(text, str):
                    raise UsageError(
                        f'{path}: line {number} is no object with a "text"',
                        hint='such as {"text": "Once upon a time"}',
                    )
                yield text
        except Unreadable as reason:
            raise UsageError(f"{path}: {reason}", hint="give one JSON object a line") from None


def _pieces(text: str) -> Iterator[str]:
    """Yields a text in pieces that end with a line where there is one."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def _end_token(content: Any) -> int | None:
    """Returns the number of the token that ends a text, from a tokenizer's file."""
    added = content.get("added_tokens") if isinstance(content, dict) else None
    numbers = {
        one.get("content"): one.get("id")
        for one in (added if isinstance(added, list) else ())
        if isinstance(one, dict)
    }
    found = next((numbers[token] for token in _END_TOKENS if token in numbers), None)
    return found if isinstance(found, int) and 0 <= found < 1 << 31 else None


def _tokens(path: Path, tokenizer: Path) -> array[int]:
    import tokenizers

    description = read_text(tokenizer, DOCUMENT)
    try:
        end = _end_token(parse_json(description))
        known = tokenizers.Tokenizer.from_str(description)
    except Exception as error:
        reason = str(error).partition("\n")[0][:200]
        raise UsageError(
            f"{tokenizer} is no tokenizer: {reason}",
            hint="give the tokenizer.json of Hugging Face's tokenizers",
        ) from None
    known.no_padding()
    known.no_truncation()
    tokens = array("i")
    for number, text in enumerate(_texts(path)):
        if number and end is not None:
            tokens.append(end)
        for piece in _pieces(text):
            tokens.extend(known.encode(piece, add_special_tokens=False).ids)
    return tokens


def _main(text: str, tokenizer: str, result: str) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        tokens = _tokens(Path(text), Path(tokenizer))
    except AutotuneError as error:
        print(json.dumps({"message": error.message, "hint": error.hint}))
        return 2
    np.save(result, np.frombuffer(tokens, np.int32) if tokens else np.zeros(0, np.int32))
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
