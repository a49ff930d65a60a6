"""C and C++ source of a C export: header, tables, and the calls in the example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune import __version__
from autotune.compiler.export.checks import Check
from autotune.compiler.export.texts import template
from autotune.compiler.export.variants import Variant, kernels_of
from autotune.errors import UsageError
from autotune.workloads.operators import Kernel, TensorSpec

_C_TYPES = {"float32": "float", "int32": "int32_t"}
_RESERVED = {
    "auto", "bool", "break", "case", "catch", "char", "class", "const", "continue", "default",
    "delete", "do", "double", "else", "enum", "extern", "false", "float", "for", "friend",
    "goto", "if", "inline", "int", "long", "namespace", "new", "operator", "private", "public",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "template", "this", "throw", "true", "try", "typedef", "union", "unsigned", "using", "void",
    "volatile", "while", "context",
}  # fmt: skip
_FUNCTIONS = (
    "context_create",
    "context_destroy",
    "status_text",
    "error",
    "context_variant",
    "context_threads",
    "variant_count",
    "variant_name",
    "kernel_count",
    "kernel_at",
    "run",
)


def check_name(name: str) -> None:
    """Refuses a library name that C functions cannot begin with.

    Raises:
        UsageError: It is such a name.
    """
    if not (name.isascii() and name.isidentifier()) or name in _RESERVED or name.startswith("_"):
        raise UsageError(
            f"--name {name}: not a name that C functions can begin with",
            hint="letters, digits and underscores, beginning with a letter, such as lenet_kernels",
        )


def prefix(variant: int) -> str:
    """Returns the prefix of the symbols of a variant's kernels."""
    return f"v{variant}__"


def words(name: str) -> dict[str, str]:
    """Returns the words that every template uses."""
    return {
        "NAME": name,
        "UPPER": name.upper(),
        "VERSION": __version__,
        "GUARD": f"{name.upper()}_H_",
    }


def header(name: str, kernels: Sequence[Kernel], alignment: int) -> str:
    """Returns the C header."""
    functions = "\n\n".join(
        f"{_comment(kernel)}\n{name.upper()}_API {_signature(name, kernel)};" for kernel in kernels
    )
    return template(
        "c/header.h.txt", {**words(name), "ALIGNMENT": str(alignment), "FUNCTIONS": functions}
    )


def symbols(name: str, kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """Returns the symbols that the libraries export."""
    functions = (*_FUNCTIONS, *(kernel.name for kernel in kernels))
    return tuple(f"{name}_{function}" for function in functions)


def library(name: str, variants: Sequence[Variant], features: Mapping[str, Sequence[str]]) -> str:
    """Returns the C++ source: tables, and the functions of the header."""
    kernels = kernels_of(variants)
    has = [{one.kernel.name for one in variant.kernels} for variant in variants]
    declarations, tables, entries, infos, functions = [], [], [], [], []
    shapes: dict[tuple[int, ...], str] = {}
    for kernel in kernels:
        for spec in (*kernel.inputs, *kernel.outputs):
            shapes.setdefault(spec.shape, f"kShape{len(shapes)}")
    for shape, symbol in shapes.items():
        extents = ", ".join(map(str, shape)) or "0"
        tables.append(f"constexpr int64_t {symbol}[] = {{{extents}}};")
    for number, kernel in enumerate(kernels):
        specs = [(s, False) for s in kernel.inputs] + [(s, True) for s in kernel.outputs]
        implemented = [
            f"__tvm_ffi_{prefix(index)}{kernel.name}" if kernel.name in names else "nullptr"
            for index, names in enumerate(has)
        ]
        declarations += [
            f"int {symbol}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);"
            for symbol in implemented
            if symbol != "nullptr"
        ]
        tables.append(
            f"constexpr kl::OperandTable kOperands{number}[] = {{"
            + ", ".join(f"{{k{s.dtype}, {len(s.shape)}, {shapes[s.shape]}}}" for s, _ in specs)
            + "};"
        )
        tables.append(
            f"const kl::KernelFunction kFunctions{number}[] = {{{', '.join(implemented)}}};"
        )
        tables.append(
            f"const {name}_operand kInfo{number}[] = {{"
            + ", ".join(
                f'{{"{s.name}", "{s.dtype}", {len(s.shape)}, {shapes[s.shape]}, {s.bytes}u, {int(out)}}}'
                for s, out in specs
            )
            + "};"
        )
        entries.append(f"{{{len(specs)}, kOperands{number}, kFunctions{number}}}")
        infos.append(
            f'{{"{kernel.name}", "{kernel.spec}", "{kernel.role}", {len(specs)}, kInfo{number}}}'
        )
        functions.append(_definition(name, number, kernel))
    for number, variant in enumerate(variants):
        wanted = "".join(f'"{word}", ' for word in features[variant.name])
        tables.append(f"const char* const kFeatures{number}[] = {{{wanted}nullptr}};")
    tables.append("const kl::KernelTable kTable[] = {\n    " + ",\n    ".join(entries) + "};")
    tables.append(f"const {name}_kernel kKernels[] = {{\n    " + ",\n    ".join(infos) + "};")
    tables.append(
        "const kl::VariantTable kVariants[] = {\n    "
        + ",\n    ".join(
            f"{{{_text(one.name)}, {_text(one.soc)}, {_text(one.cluster)}, {one.threads}, kFeatures{number}}}"
            for number, one in enumerate(variants)
        )
        + "};"
    )
    safe = next(number for number, one in enumerate(variants) if one.is_safe)
    tables.append(
        f"const kl::LibraryTable kLibrary = {{{len(kernels)}, kTable, {len(variants)}, kVariants, {safe}}};"
    )
    return template(
        "c/library.cc.txt",
        {
            **words(name),
            "DECLARATIONS": "\n".join(declarations),
            "TABLES": "\n".join(tables),
            "FUNCTIONS": "\n\n".join(functions),
        },
    )


def example(name: str, checks: Sequence[Check]) -> dict[str, str]:
    """Returns words for the example's template: calls of the checked kernels, and their files."""
    calls, entries = [], []
    for number, check in enumerate(checks):
        kernel = check.kernel
        files = ", ".join(f'"{file}"' for file in (*check.inputs, *check.expected))
        count = len(kernel.inputs) + len(kernel.outputs)
        arguments = "".join(f", p[{index}]" for index in range(count))
        calls.append(
            f"static const char* const files_{number}[] = {{{files}}};\n"
            f"static {name}_status call_{number}({name}_context* context, void* const* p) {{\n"
            f"  return {name}_{kernel.name}(context{arguments});\n"
            "}"
        )
        entries.append(f'    {{"{kernel.name}", call_{number}, files_{number}}},')
    return {
        "CALLS": "\n\n".join(calls),
        "CHECKS": "\n".join(entries),
        "TOLERANCE": repr(checks[0].tolerance),
    }


def _signature(name: str, kernel: Kernel) -> str:
    parameters = [f"{name}_context* context"]
    parameters += [f"const {_C_TYPES[s.dtype]}* {_parameter(s)}" for s in kernel.inputs]
    parameters += [f"{_C_TYPES[s.dtype]}* {_parameter(s)}" for s in kernel.outputs]
    return f"{name}_status {name}_{kernel.name}({', '.join(parameters)})"


def _definition(name: str, number: int, kernel: Kernel) -> str:
    operands = [f"Mutable({_parameter(s)})" for s in kernel.inputs]
    operands += [_parameter(s) for s in kernel.outputs]
    return (
        f"{_signature(name, kernel)} {{\n"
        f"  void* const operands[] = {{{', '.join(operands)}}};\n"
        f"  return Run(context, {number}, operands);\n"
        "}"
    )


def _comment(kernel: Kernel) -> str:
    lines = [f"{kernel.role} of {kernel.spec}."]
    lines += [f"@param {_parameter(s)} {_shape(s)}" for s in kernel.inputs]
    for index, spec in enumerate(kernel.outputs):
        place = kernel.replaces[index] if kernel.replaces else None
        may = f"; may be {_parameter(kernel.inputs[place])}" if place is not None else ""
        lines.append(f"@param {_parameter(spec)} {_shape(spec)}, written{may}")
    return "/**\n" + "".join(f" * {line}\n" for line in lines) + " */"


def _shape(spec: TensorSpec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"


def _parameter(spec: TensorSpec) -> str:
    return f"{spec.name}_" if spec.name in _RESERVED else spec.name


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if " " <= c < "\x7f" else "?" for c in escaped) + '"'
