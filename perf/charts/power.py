"""The power of the verdicts as an SVG that reads in light and dark."""

from collections.abc import Mapping
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 560, 320, 52, 34, 120, 48
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.axis{stroke:#888}.grid{stroke:#8884}"
    ".l0{stroke:#0072b2}.l1{stroke:#d55e00}.l2{stroke:#009e73}.f0{fill:#0072b2}.f1{fill:#d55e00}"
    ".f2{fill:#009e73}polyline{fill:none;stroke-width:2}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#999}"
    ".l0{stroke:#56b4e9}.l1{stroke:#e69f00}.l2{stroke:#4cc9a0}"
    ".f0{fill:#56b4e9}.f1{fill:#e69f00}.f2{fill:#4cc9a0}}"
)


def write_chart(path: Path, caught: Mapping[tuple[int, float], float]) -> None:
    """Write the curves: share of claims not verified, by runs and by speed (0.9 is 10 % fewer)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(chart(caught), encoding="utf-8")


def chart(caught: Mapping[tuple[int, float], float]) -> str:
    """The SVG text, one line for each number of runs."""
    numbers = sorted({runs for runs, _ in caught})
    largest = max((1 - speed) * 100 for _, speed in caught)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Claims that are not verified, by how many epochs they leave out</title>",
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="18">claims not verified, at a variation of 5 %</text>',
        *_axes(largest),
    ]
    for place, runs in enumerate(numbers):
        points = sorted(((1 - s) * 100, share) for (n, s), share in caught.items() if n == runs)
        parts += _line(place, runs, points, largest)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(largest: float) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>']
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for percent in (0, 2, 5, 10, 20):
        x = _x(percent, largest)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{percent} %</text>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">fewer epochs claimed than '
        "the reference needs</text>"
    )
    return parts


def _line(place: int, runs: int, points: list[tuple[float, float]], largest: float) -> list[str]:
    places = [(_x(percent, largest), _y(share)) for percent, share in points]
    colour = place % 3
    text_y = TOP + 16 + 18 * place
    return [
        f'<polyline class="l{colour}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>',
        *(f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places),
        f'<circle class="f{colour}" cx="{WIDTH - RIGHT + 20}" cy="{text_y - 4}" r="4"/>',
        f'<text x="{WIDTH - RIGHT + 30}" y="{text_y}">{runs} runs</text>',
    ]


def _x(percent: float, largest: float) -> float:
    return LEFT + percent / largest * (WIDTH - RIGHT - LEFT)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - BOTTOM - TOP)
