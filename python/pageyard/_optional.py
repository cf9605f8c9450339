"""Packages that are needed for some functions only."""

from __future__ import annotations

import importlib
from typing import Any


def need(package: str, what: str, extra: str) -> Any:
    """Import a package that ``what`` needs, or say how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as e:
        # A package that is installed and broken says so itself.
        if e.name is not None and e.name.split(".")[0] != package.split(".")[0]:
            raise
        raise ImportError(
            f"{what} needs {package}; install it with: pip install 'pageyard[{extra}]'"
        ) from e
