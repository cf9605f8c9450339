"""Packages that are optional."""

import pathlib
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

import pageyard


def test_plots_draw_one_bar_per_policy(kbuild: pathlib.Path) -> None:
    result = pageyard.replay(kbuild, policies=["Base", "Step5"], seeds=1)
    axes = result.plot("zone_pages")
    assert [bar.get_height() for bar in axes.patches] == [r["zone_pages"] for r in result.rows()]
    with pytest.raises(KeyError, match="expected one of"):
        result.plot("nope")
    runs = pageyard.run("micro", machine="desktop", memory="1G", policies=["Base", "Step5"])
    assert len(runs.plot().patches) == 2
    image = pageyard.PageAllocator("16M").plot().images[0].get_array()
    assert image is not None and image.shape == (32, 128)
    plt.close("all")


@pytest.mark.parametrize(
    ("package", "call", "extra"),
    [
        ("pandas", "pageyard.conform(FILE).to_pandas()", "pandas"),
        ("polars", "pageyard.conform(FILE).to_polars()", "polars"),
        ("matplotlib", "pageyard.PageAllocator('16M').plot()", "plot"),
        ("tqdm", "pageyard.conform(FILE, progress=True)", "progress"),
    ],
)
def test_a_missing_package_is_named(
    package: str, call: str, extra: str, recordings: list[pathlib.Path]
) -> None:
    # `None` in sys.modules makes the import fail as if the package were not installed.
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"import pageyard; FILE = {str(recordings[0])!r}\n"
        f"{call}\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"install it with: pip install 'pageyard[{extra}]'" in ran.stderr


def test_the_page_is_written_whole(kbuild: pathlib.Path, tmp_path: pathlib.Path) -> None:
    result = pageyard.replay(kbuild, policies="Base", seeds=1)
    page = tmp_path / "page.html"
    result.write_html(page)
    assert page.read_text().startswith("<!DOCTYPE html>") and page.read_text().rstrip().endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
