"""The scoreboard as a picture: attainment against GPU-hours, one dot a policy.

Needs matplotlib (the extra ``picture``), imported only here and only when a picture is wanted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoscaler.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_PANEL_INCHES = (3.4, 2.7)
_SUFFIXES = (".svg", ".png", ".pdf")


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw an ``autoscaler.scoreboard/v1`` document: a panel a class, then one a scenario.

    Args:
        document: the scoreboard.
        path: is replaced; ends in .svg, .png or .pdf.

    Raises:
        ConfigError: matplotlib is not installed, or the file cannot be written.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: must end in one of {', '.join(_SUFFIXES)}")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "picture: needs matplotlib; must be installed with: pip install 'autoscaler[picture]'"
        ) from error
    panels = _panels(document)
    rows = -(-len(panels) // _COLUMNS)
    size = (_PANEL_INCHES[0] * _COLUMNS, _PANEL_INCHES[1] * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    marks = _marks(panels)
    for panel, axis in zip(panels, axes, strict=False):
        _panel(axis, panel, marks)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= {str(h.get_label()): h for h in axis.get_legend_handles_labels()[0]}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=8, fontsize="small"
    )
    # The same scoreboard gives the same file: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "autoscaler"}):
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise ConfigError(f"{path}: must be a writable file; {error.strerror}") from error


def _panels(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    panels = []
    for load_class in dict.fromkeys(row["class"] for row in document["summary"]):
        rows = [r for r in document["summary"] if r["class"] == load_class]
        dots = [
            (r["policy"], r["oracle_gpu_hours_ratio"], r["windows_ok_ratio"])
            for r in rows
            if r["oracle_gpu_hours_ratio"] is not None
        ]
        if dots:
            panels.append({"title": f"all {load_class}", "x": "GPU-hours / oracle's", "dots": dots})
    for entry in document["scenarios"]:
        dots = [
            (r["policy"], r["gpu_hours"], r["slo"]["windows_ok_ratio"])
            for r in entry["simulation"]["results"]
        ]
        title = f"{entry['name']} ({entry['class'] or 'unclassed'})"
        panels.append({"title": title, "x": "GPU-hours", "dots": dots})
    return panels


def _marks(panels: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, str]]:
    """Colour and marker by policy, the same in every panel."""
    policies = dict.fromkeys(name for panel in panels for name, _, _ in panel["dots"])
    own = [p for p in policies if p != "oracle" and not p.startswith("static:")]
    marks: dict[str, tuple[Any, str]] = {
        p: (f"C{i % 10}", "os^v"[i // 10]) for i, p in enumerate(own)
    }
    return {**marks, "oracle": ("black", "*")}


def _panel(axis: "Axes", panel: Mapping[str, Any], marks: Mapping[str, tuple[Any, str]]) -> None:
    for name, gpu_hours, attained in panel["dots"]:
        if name.startswith("static:"):
            axis.scatter([gpu_hours], [100 * attained], s=14, color="0.7", label="static")
            axis.annotate(
                name.removeprefix("static:"),
                (gpu_hours, 100 * attained),
                fontsize="xx-small",
                color="0.5",
                textcoords="offset points",
                xytext=(2, -7),
            )
        else:
            colour, marker = marks[name]
            axis.scatter(
                [gpu_hours], [100 * attained], s=26, color=colour, marker=marker, label=name
            )
    axis.axhline(99, linewidth=0.5, color="0.6")
    axis.set_title(panel["title"], fontsize="small")
    axis.set_xlabel(panel["x"], fontsize="x-small")
    axis.set_ylabel("windows within the SLO, %", fontsize="x-small")
    axis.tick_params(labelsize="x-small")
    axis.set_xlim(0, 1.07 * max((gpu_hours for _, gpu_hours, _ in panel["dots"]), default=1.0))
    axis.set_ylim(top=102)
