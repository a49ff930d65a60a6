from .batches import batch_orders, batches
from .formats import FORMATS
from .generated import generated_samples
from .loading import DataSpec, load_arrays, load_samples
from .samples import IMAGE_AXES, LARGEST_BYTES, Samples, Shape
from .texts import TEXTS, Tokens, load_tokens

__all__ = [
    "batch_orders",
    "batches",
    "DataSpec",
    "FORMATS",
    "generated_samples",
    "IMAGE_AXES",
    "LARGEST_BYTES",
    "load_arrays",
    "load_samples",
    "load_tokens",
    "Tokens",
    "Samples",
    "Shape",
    "TEXTS",
]
