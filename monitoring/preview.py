"""Draws the dashboards from a Prometheus, without a Grafana, as one self-contained page.

``python -m monitoring.preview --prometheus URL --out preview.html``
"""

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from plotly.offline import get_plotlyjs

from autoscaler.clock import wall_s
from autoscaler.errors import ObservationError
from monitoring import drawing
from monitoring.answers import Dashboard, Prometheus, Window, read

FOLDER = Path(__file__).parent.parent / "deploy" / "dashboards"
_POINTS = 240
_STYLE = """
body { background: #111217; color: #ccccdc; margin: 12px; font: 13px "DejaVu Sans", sans-serif }
h1 { font-size: 20px; margin: 8px 0 }
h2 { font-size: 15px; margin: 10px 0 2px; grid-column: 1 / -1 }
.page { display: grid; gap: 8px; grid-template-columns: repeat(24, 1fr) }
.panel { background: #181b1f; border: 1px solid #2c3235; padding: 6px; min-width: 0 }
.panel h3 { font-size: 13px; margin: 0 0 4px }
.text { color: #8e8e9c; font-size: 11px; margin: 0 0 4px }
.numbers { display: flex; gap: 24px; justify-content: center; text-align: center }
.number { font-size: 30px; font-weight: 600 }
.empty { color: #f2495c }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 5px 8px; border-bottom: 1px solid #2c3235 }
"""


def page(dashboards: list[Dashboard], *, descriptions: bool = False) -> str:
    """The dashboards as HTML.

    Args:
        dashboards: what to draw.
        descriptions: whether to print what Grafana shows when pointed at.
    """
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Autoscaler dashboards</title>",
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script>",
    ]
    for dashboard in dashboards:
        parts += [f"<h1>{html.escape(dashboard.content['title'])}</h1>", _when(dashboard)]
        parts.append("<div class=page>")
        marks = dashboard.annotations()
        for panel in dashboard.content["panels"]:
            title = html.escape(panel["title"])
            if panel["type"] == "row":
                parts.append(f"<h2>{title}</h2>")
                continue
            span = panel["gridPos"]["w"]
            text = html.escape(panel["description"]) if descriptions else ""
            drawn = drawing.draw(panel, dashboard.ask(panel), marks, dashboard.window)
            parts.append(
                f'<div class=panel style="grid-column: span {span}"><h3>{title}</h3>'
                f"<p class=text>{text}</p>{drawn}</div>"
            )
        parts.append("</div>")
    return "\n".join(parts)


def _when(dashboard: Dashboard) -> str:
    window = dashboard.window
    first, last = (datetime.fromtimestamp(at_s, UTC) for at_s in (window.start_s, window.end_s))
    chosen = "; ".join(f"{k}: {', '.join(v)}" for k, v in dashboard.choices.items())
    return (
        f"<p class=text>{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC; {html.escape(chosen)}</p>"
    )


def main(
    prometheus: Annotated[str, typer.Option(metavar="URL", help="The Prometheus to ask.")],
    out: Annotated[Path, typer.Option(help="Where the page is written.")],
    minutes: Annotated[float, typer.Option(help="Time range, up to now.")] = 60.0,
    scrape_interval_s: Annotated[float, typer.Option(help="Of the Prometheus.")] = 15.0,
    target: Annotated[str, typer.Option(help="The target to show. [default: the first]")] = "",
    only: Annotated[str, typer.Option(help="File name of one dashboard, without .json.")] = "",
) -> None:
    """Draw every dashboard from what a Prometheus answers."""
    end_s = wall_s()
    step_s = max(60 * minutes / _POINTS, scrape_interval_s)
    window = Window(end_s - 60 * minutes, end_s, step_s, scrape_interval_s)
    asked = Prometheus(prometheus)
    paths = [path for path in sorted(FOLDER.glob("*.json")) if only in ("", path.stem)]
    try:
        text = page([read(path, asked, window, target) for path in paths])
    except ObservationError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    out.write_text(text, encoding="utf-8")
    shown = len(re.findall("class=panel", text))
    typer.echo(f"{out}: {len(paths)} dashboards, {shown} panels")


if __name__ == "__main__":
    typer.run(main)
