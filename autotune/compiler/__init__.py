"""Compiles, measures and searches with TVM. No other room imports TVM.

Importing TVM would import PyTorch where it is installed, which takes seconds. TVM only gets arrays of NumPy here.
So this package hides PyTorch during that import, unless PyTorch is already imported.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

_PACKAGES = ("tvm", "tvm_ffi")
_WITHOUT = "torch"


class _Loader(SourceFileLoader):
    """Loads a package as if there were no PyTorch."""

    def exec_module(self, module: ModuleType) -> None:
        if _WITHOUT in sys.modules:
            super().exec_module(module)
            return
        sys.modules[_WITHOUT] = None  # type: ignore[assignment]  # As documented: to import it fails.
        try:
            super().exec_module(module)
        finally:
            del sys.modules[_WITHOUT]


class _Finder:
    """Finds TVM's packages, for `sys.meta_path`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder)
