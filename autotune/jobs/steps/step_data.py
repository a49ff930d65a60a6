"""The training data of a step: samples, a text, or random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.workloads import (
    TEXTS,
    DataSpec,
    Tensor,
    batch_orders,
    batches,
    generated_feeds,
    given_values,
    load_arrays,
    load_samples,
    load_tokens,
    own_part,
    random_values,
    whole_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.workloads import StepGraph

_SAMPLES_BYTES = 2**30
_MASK_VALUES = 2


def is_text(path: Path | None) -> bool:
    """Tells whether training data are a text."""
    return path is not None and path.suffix.lower() in TEXTS


class StepData:
    """Training data from a file or folder; random numbers where there is none."""

    def __init__(self, path: Path | None, tokenizer: Path | None = None) -> None:
        """Tokenises a text, so that a bad one is reported before a model is captured.

        Args:
            path: Samples, or a text; None for random numbers.
            tokenizer: The `tokenizer.json` of a text.

        Raises:
            UsageError: A text or its tokenizer cannot be read.
        """
        if tokenizer is not None and not is_text(path):
            raise UsageError(
                "--tokenizer goes with a text", hint=f"give --data FILE{' or FILE'.join(TEXTS)}"
            )
        self._path = path
        self._tokens = load_tokens(path, tokenizer) if path and tokenizer else None

    def feeds(self, graph: StepGraph, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yields the inputs of each step, without end.

        Args:
            graph: The step.
            seed: Seed of random samples, of the samples' order and of dropout.

        Raises:
            UsageError: The data cannot be read, or do not fit the step.
        """
        if self._path is None:
            return generated_feeds(graph, seed)
        if is_text(self._path):
            return self._text_feeds(graph, seed)
        if not graph.classifies:
            return _array_feeds(graph, self._path, seed)
        return _sample_feeds(graph, self._path, seed)

    def _text_feeds(self, graph: StepGraph, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Feeds of a causal language model: all that it takes are the same sequences of tokens."""
        specs = [_data_spec(graph, tensor) for tensor in graph.data]
        shape = specs[0].shape
        # Of labels only the largest of the examples is known; a mask has two values.
        counts = [spec.classes or 0 for spec in specs]
        if (
            any(spec.shape != shape for spec in specs)
            or len(shape) != 1
            or min(counts) <= _MASK_VALUES
        ):
            raise UsageError(
                f"--data {self._path} is a text, and {graph.name} does not take sequences of tokens alone",
                hint="a text goes with a causal language model, such as hf:gpt2; give .npz to others",
            )
        if self._tokens is None:
            raise UsageError(
                f"--data {self._path} is a text, which needs a tokenizer",
                hint="give --tokenizer FILE, the tokenizer.json of the model",
            )
        limit = max(graph.batch, _SAMPLES_BYTES // (4 * shape[0]))
        sequences = self._tokens.sequences(shape[0], max(counts), limit=limit)
        for number, chosen in enumerate(batch_orders(len(sequences), graph.batch, seed)):
            yield random_values(graph, seed, number) | {
                tensor.name: own_part(graph, tensor, sequences[chosen]) for tensor in graph.data
            }


def _sample_feeds(graph: StepGraph, path: Path, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Feeds of a classifier."""
    shape = graph.sample_shape
    limit = max(graph.batch, _SAMPLES_BYTES // (4 * math.prod(shape)))
    samples = load_samples(path, shape, graph.classes, limit=limit)
    for number, (images, labels) in enumerate(batches(samples, graph.batch, seed)):
        yield given_values(graph, images, labels, seed, number)


def _array_feeds(graph: StepGraph, path: Path, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Feeds of a step that is no classifier, from an .npz with an array for each of its inputs and labels."""
    names = {tensor.name: whole_of(tensor.name)[0] for tensor in graph.data}
    wanted = {names[tensor.name]: _data_spec(graph, tensor) for tensor in graph.data}
    sample_bytes = sum(4 * math.prod(spec.shape) for spec in wanted.values())
    arrays = load_arrays(path, wanted, limit=max(graph.batch, _SAMPLES_BYTES // sample_bytes))
    count = len(next(iter(arrays.values())))
    for number, chosen in enumerate(batch_orders(count, graph.batch, seed)):
        yield random_values(graph, seed, number) | {
            tensor.name: own_part(graph, tensor, arrays[names[tensor.name]][chosen]).astype(
                tensor.dtype
            )
            for tensor in graph.data
        }


def _data_spec(graph: StepGraph, tensor: Tensor) -> DataSpec:
    shape = tensor.layout.shape if tensor.layout else tensor.shape
    if not shape or shape[0] * graph.parts != graph.batch:
        raise UsageError(
            f"--data: {tensor.name} of {graph.name} has no value for each sample",
            hint="leave --data out; random numbers are taken then",
        )
    return DataSpec(shape[1:], tensor.counts, tensor.kind == "label")
