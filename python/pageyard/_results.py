"""Results as objects: text, data, data frames, pages, plots."""

from __future__ import annotations

import json
import os
from typing import Any, Optional, Union

from . import _pageyard
from ._optional import need

#: A row of a table: names and values.
Row = dict[str, Any]


def _flat(of: Any, into: Row, name: str = "") -> Row:
    """Flatten nested dictionaries; the names of the levels are joined by dots."""
    for key, value in of.items():
        full = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            _flat(value, into, full)
        elif not isinstance(value, list):
            into[full] = value
    return into


class _Table:
    """Rows that become a data frame."""

    def rows(self) -> list[Row]:
        """Return the rows as dictionaries."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Return a pandas data frame of :meth:`rows`."""
        pandas = need("pandas", f"{type(self).__name__}.to_pandas", "pandas")
        return pandas.DataFrame(self.rows())

    def to_polars(self) -> Any:
        """Return a polars data frame of :meth:`rows`."""
        polars = need("polars", f"{type(self).__name__}.to_polars", "polars")
        return polars.DataFrame(self.rows(), infer_schema_length=None)


def _write(path: Union[str, os.PathLike[str]], text: str) -> None:
    """Write a file that appears once it is complete."""
    path = os.fspath(path)
    partial = f"{path}.partial-{os.getpid()}"
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _bars(names: list[str], values: list[float], label: str, title: str, ax: Any) -> Any:
    """Draw one bar per name and return the axes."""
    if ax is None:
        pyplot = need("matplotlib.pyplot", "plot", "plot")
        _, ax = pyplot.subplots()
    ax.bar(range(len(names)), values)
    ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
    ax.set_ylabel(label)
    ax.set_title(title)
    return ax


class Replay(_Table):
    """The results of :func:`pageyard.replay`. ``print`` shows the table."""

    def __init__(self, native: _pageyard.Replay, command: str) -> None:
        self._native = native
        self._command = command
        self._data: Optional[dict[str, Any]] = None

    @property
    def data(self) -> dict[str, Any]:
        """All results, as ``pageyard replay --json`` prints them."""
        if self._data is None:
            self._data = json.loads(self._native.json())
        return self._data

    @property
    def policies(self) -> list[str]:
        """The names of the policies, in order."""
        return [column["policy"] for column in self.data["policies"]]

    def rows(self) -> list[Row]:
        """Return one row for the recording, ``recorded``, and one for each policy."""
        rows = [_flat(self.data["recorded"], {"policy": "recorded"})]
        for column in self.data["policies"]:
            row = _flat(column["figures"], {"policy": column["policy"]})
            if column.get("price"):
                _flat(column["price"], row, "price")
            rows.append(row)
        return rows

    def html(self) -> str:
        """Return a page with tables and, if ``record=True``, plots: one file, no network."""
        return self._native.html(self._command)

    def write_html(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the page to a file."""
        _write(path, self.html())

    def plot(self, figure: str = "zone_pages", *, ax: Any = None) -> Any:
        """Draw one bar per row for a column of :meth:`rows`, with matplotlib; return the axes."""
        rows = [row for row in self.rows() if row.get(figure) is not None]
        if not rows:
            known = ", ".join(name for name in self.rows()[-1] if name != "policy")
            raise KeyError(f"figure {figure!r}: expected one of {known}")
        names = [row["policy"] for row in rows]
        title = os.path.basename(self.data["reading"]["input"])
        return _bars(names, [row[figure] for row in rows], figure, title, ax)

    def __str__(self) -> str:
        return str(self._native)

    def __repr__(self) -> str:
        return f"<Replay of {self.data['reading']['input']!r}: {', '.join(self.policies)}>"


class Runs(_Table):
    """The results of :func:`pageyard.run`."""

    def __init__(self, native: _pageyard.Runs, command: str) -> None:
        self._native = native
        self._command = command
        self._data: Optional[list[dict[str, Any]]] = None

    @property
    def data(self) -> list[dict[str, Any]]:
        """All results, one per policy, as ``pageyard run --json`` prints them."""
        if self._data is None:
            self._data = json.loads(self._native.json())
        return self._data

    @property
    def policies(self) -> list[str]:
        """The names of the policies, in order."""
        return [result["policy"] for result in self.data]

    def rows(self) -> list[Row]:
        """Return one row for each policy, metric and iteration.

        ``world`` is ``simulated`` or ``host``, ``machine`` the machine in it, and
        ``parameters.NAME`` each parameter of the workload and of the machine.
        """
        rows = []
        for result in self.data:
            ((world, machine),) = result["world"].items()
            parameters = _flat(result["parameters"], {}, "parameters")
            for metric in result["metrics"]:
                for iteration, value in enumerate(metric["samples"]):
                    rows.append(
                        {
                            "workload": result["workload"],
                            "world": world,
                            "machine": machine,
                            "policy": result["policy"],
                            "seed": result["seed"],
                            "metric": metric["name"],
                            "unit": metric["unit"],
                            "better": metric["better"],
                            "iteration": iteration,
                            "value": value,
                            **parameters,
                        }
                    )
        return rows

    def html(self) -> str:
        """Return a page with tables and plots: one file, no network."""
        return self._native.html(self._command)

    def write_html(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the page to a file."""
        _write(path, self.html())

    def plot(self, metric: Optional[str] = None, *, ax: Any = None) -> Any:
        """Draw the mean of a metric for each policy, with matplotlib; return the axes.

        The default is the first metric.
        """
        names, means, unit = [], [], ""
        for result in self.data:
            metric = metric or result["metrics"][0]["name"]
            for found in result["metrics"]:
                if found["name"] == metric:
                    counted = [value for value in found["samples"] if value is not None]
                    names.append(result["policy"])
                    means.append(sum(counted) / len(counted) if counted else float("nan"))
                    unit = found["unit"]
        if not names:
            known = ", ".join(m["name"] for m in self.data[0]["metrics"])
            raise KeyError(f"metric {metric!r}: expected one of {known}")
        label = f"{metric}, {unit}" if unit else str(metric)
        return _bars(names, means, label, self.data[0]["workload"], ax)

    def __repr__(self) -> str:
        workload = self.data[0]["workload"] if self.data else ""
        return f"<Runs of {workload!r}: {', '.join(self.policies)}>"


class Conformance(_Table):
    """The results of :func:`pageyard.conform`. ``print`` shows each recording's."""

    def __init__(self, native: _pageyard.Conformance) -> None:
        self._native = native
        self._data: list[dict[str, Any]] = json.loads(native.json())

    @property
    def data(self) -> list[dict[str, Any]]:
        """The outcome of each recording."""
        return self._data

    @property
    def identical(self) -> bool:
        """Whether every answer and every state equals the kernel's."""
        return all(outcome["difference"] is None for outcome in self._data)

    def rows(self) -> list[Row]:
        """Return one row for each recording; without the details of a difference."""
        return [
            {**{k: v for k, v in outcome.items() if k != "difference"},
             "identical": outcome["difference"] is None}
            for outcome in self._data
        ]

    def __str__(self) -> str:
        return str(self._native).rstrip("\n")

    def __repr__(self) -> str:
        same = sum(outcome["difference"] is None for outcome in self._data)
        return f"<Conformance: {same} of {len(self._data)} recordings identical>"
