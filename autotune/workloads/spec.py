"""Parses the text of ``--op`` and ``--roles``."""

from __future__ import annotations

from autotune.errors import UsageError
from autotune.workloads.operators import (
    Expression,
    Kernel,
    Operator,
    OwnKernel,
    Role,
    operator_from_spec,
    spelled,
)

_NOT_SHORT = ("n", "channels_last", "pad", "ceil", "epsilon_millionths", "relu", "relu6")
"""Fields that a short name omits, besides those that it writes in a special way."""


def parse_operator(text: str) -> Operator:
    """Parses an operator such as ``conv2d:n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1``.

    Args:
        text: ``operator:key=value,...``. A pair is ``2`` or ``2x1``; a flag is ``1`` or ``0``.

    Returns:
        The operator.

    Raises:
        UsageError: Unknown operator; unknown, missing or repeated key; bad value or shapes.
    """
    return operator_from_spec(text)


def parse_kernels(text: str, roles: str | None = None) -> tuple[Kernel, ...]:
    """Parses what ``--op`` and ``--role`` take: an operator, possibly with an epilogue, in some roles.

    Besides the operators' own texts these are read: ``conv1d``, ``conv1d_transpose``, ``conv2d_transpose``, and
    ``conv2d`` with ``pad=0x0x1x1`` for above, left, below and right. They become convolutions of two axes.

    Args:
        text: The operator, then ``+operator.role:key=value,...`` for each kernel that follows it.
        roles: Roles of the operator as written, separated by commas; None for its usual ones.

    Raises:
        UsageError: See ``parse_kernel`` and ``parse_roles``; or there is an epilogue, and more than one role.
    """
    first, plus, epilogue = text.partition("+")
    spelling = spelled(first)
    operator = spelling.operator() if spelling else parse_operator(first)
    chosen = operator.usual_roles() if roles is None else parse_roles(roles, operator)
    if plus and len(chosen) != 1:
        raise UsageError(
            "an operator with an epilogue is tuned in one role", hint="give it with --role"
        )
    own = [spelling.role(one) if spelling else one for one in chosen]
    return tuple(parse_kernel(f"{operator.spec()}{plus}{epilogue}", one) for one in own)


def parse_kernel(text: str, role: str) -> Kernel:
    """Parses a kernel with its epilogue, such as ``conv2d:n=8,...+bias.forward:n=8,c=64,s=3136,relu=1``.

    Args:
        text: The operator, then ``+operator.role:key=value,...`` for each kernel that follows it.
        role: The role of the first operator.

    Raises:
        UsageError: See ``parse_operator`` and ``parse_roles``; or the epilogue does not fit.
    """
    first, *rest = text.split("+")
    operator = parse_operator(first)
    followers = []
    for part in rest:
        head, _, body = part.partition(":")
        name, dot, its_role = head.strip().partition(".")
        if not dot:
            raise UsageError(
                f"{part!r} has no role", hint="such as +bias.forward:n=8,c=64,s=3136,relu=1"
            )
        follower = parse_operator(f"{name}:{body}")
        followers.append(Kernel(follower, _one_role(its_role, follower)))
    return Kernel(operator, _one_role(role, operator), tuple(followers))


def _one_role(text: str, operator: Operator) -> Role:
    roles = parse_roles(text, operator)
    if len(roles) > 1:
        raise UsageError(f"{operator.name} has several roles: {text!r}", hint=f"give {roles[0]}")
    return roles[0]


def short_name(spec: str) -> str:
    """Returns a kernel's name for tables: operator, sizes and epilogue, without batch and layout.

    Args:
        spec: Text for ``parse_kernel``. A result is, for example, ``conv2d c64 56x56 k64 3x3 s2+bias+relu``.
            Different kernels may have the same short name. A text that this version cannot read is its own.
    """
    try:
        return _short_name(spec)
    except UsageError:
        return spec


def _short_name(spec: str) -> str:
    first, *rest = spec.split("+")
    operator, _, body = first.partition(":")
    if operator == Expression.name:
        words = [Expression(body).short_name()]
    elif operator == OwnKernel.name:
        words = [OwnKernel(body).short_name()]
    else:
        words = [operator, *_short_sizes(_settings(body))]
    after = (f"+{part.partition('.')[0]}{_flags(part)}" for part in rest)
    return " ".join(words) + _flags(first) + "".join(after)


def _settings(body: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in body.split(","))


def _short_sizes(sizes: dict[str, str]) -> list[str]:
    joined = [
        names for names in (("m", "n", "k"), ("h", "w"), ("r", "s")) if set(names) <= set(sizes)
    ]
    found = []
    for name, value in sizes.items():
        group = next((names for names in joined if name in names), None)
        if group is not None:
            if name == group[0]:
                found.append("x".join(sizes[one] for one in group))
        elif name == "size":
            found.append(value)
        elif name in ("stride", "dilation", "groups"):
            found += [f"{name[0]}{value}"] if value != "1" else []
        elif name not in _NOT_SHORT:
            found.append(f"{name}{value}")
    return found


def _flags(part: str) -> str:
    return "".join(
        f"+{name}" for name in ("relu", "relu6") if f"{name}=1" in part.split(":")[-1].split(",")
    )


def parse_roles(text: str, operator: Operator) -> tuple[Role, ...]:
    """Parses roles such as ``forward,data_grad,weight_grad``.

    Args:
        text: Roles, separated by commas.
        operator: The operator that must have them.

    Returns:
        The roles in the order given.

    Raises:
        UsageError: No role, an unknown or repeated role, or one that the operator does not have.
    """
    valid = f"roles of {operator.name}: {', '.join(operator.roles())}"
    chosen: list[Role] = []
    for part in text.split(","):
        role = part.strip()
        if not role:
            raise UsageError(f"empty role in {text!r}", hint=valid)
        if role not in operator.roles():
            raise UsageError(f"{operator.name} has no role {role!r}", hint=valid)
        if role in chosen:
            raise UsageError(f"role {role!r} is given twice", hint=f"give {role} once")
        chosen.append(role)
    return tuple(chosen)
