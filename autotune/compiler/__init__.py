"""What compiles, measures and searches with TVM: the one room that imports it.

TVM imports PyTorch wherever it is installed, for tensors that go from one to the other. That takes seconds of every
process, and TVM gets arrays of NumPy from us: it is imported as if there were no PyTorch, unless that has been
imported before.
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
