"""C++ programs of `rpc/`, built on the user's machine: OpenCL runtime, device server, runners, observer.

Builds are cached by TVM's version and by the sources. No other room calls a C++ compiler for them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
