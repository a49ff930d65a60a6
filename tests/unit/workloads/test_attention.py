"""Scaled dot-product attention is one kernel forward and two backward, and computes what PyTorch does."""

from __future__ import annotations

from typing import Any

import pytest
from against_pytorch import compared

from autotune.errors import UsageError
from autotune.workloads import parse_operator

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

BATCH, TOKENS, HEADS, LENGTH = 2, 6, 4, 8


class Attending(nn.Module):  # type: ignore[misc]
    """A layer of attention, whose options are those of PyTorch's function."""

    input_shape = (TOKENS, 16)

    def __init__(self, groups: int = HEADS, mask: Any = None, **options: Any) -> None:
        super().__init__()
        self.groups, self.mask, self.options = groups, mask, options
        self.q = nn.Linear(16, HEADS * LENGTH)
        self.k, self.v = (nn.Linear(16, groups * LENGTH) for _ in range(2))
        self.out = nn.Linear(HEADS * LENGTH, 5)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            layer(x).view(x.shape[0], TOKENS, heads, LENGTH).transpose(1, 2)
            for layer, heads in ((self.q, HEADS), (self.k, self.groups), (self.v, self.groups))
        )
        mask = self.mask
        if mask is not None and mask.is_floating_point():
            mask = mask.to(x.dtype)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)
        return self.out(found.transpose(1, 2).flatten(2).mean(1))


def _padding() -> Any:
    return torch.arange(TOKENS)[None, None, None, :] < torch.tensor([4, 6])[:, None, None, None]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "g=4,d=8"),
        ({"is_causal": True, "scale": 0.5}, "g=4,d=8,causal=1"),
        ({"groups": 2, "enable_gqa": True, "is_causal": True}, "g=2,d=8,causal=1"),
        ({"mask": _padding}, "g=4,d=8,mask=2x1,same_for_all=1"),
        ({"mask": lambda: torch.linspace(-2, 1, 36).view(6, 6)}, "g=4,d=8,mask=1"),
        ({"mask": lambda: torch.rand(1, 4, 6, 6) < 0.7}, "g=4,d=8,mask=1x4"),
    ],
)
def test_attention_is_pytorchs(options: dict[str, Any], wanted: str) -> None:
    torch.manual_seed(1)
    made = {name: one() if callable(one) else one for name, one in options.items()}
    off, graph = compared(Attending(**made), BATCH, channels_last=True)
    assert off < 1e-10
    found = {
        (node.kernel.operator.spec(), node.kernel.role)
        for node in graph.nodes
        if node.kernel.operator.name == "attention"
    }
    spec = f"attention:b=2,t=6,s=6,h=4,{wanted}"
    assert found == {(spec, role) for role in ("forward", "data_grad", "weight_grad")}
    assert not any(tensor.elements == 36 * BATCH * HEADS for tensor in graph.tensors)


def test_attention_that_drops_out_is_pytorchs_with_the_same_mask() -> None:
    torch.manual_seed(1)
    assert compared(Attending(dropout_p=0.25), BATCH, channels_last=True)[0] < 1e-10


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("g=3", "3 heads of keys do not divide 4"),
        ("g=2,mask=3x1", "a mask of 3 samples and 1 heads does not fit"),
        ("g=2,same_for_all=1", "same_for_all goes with a mask"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changed: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        parse_operator(f"attention:b=2,t=6,s=6,h=4,d=8,{changed}")
