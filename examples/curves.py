"""Two curves of a loss over each other, as an SVG."""

from __future__ import annotations

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 56, 40, 16


def picture(torchs: list[float], servers: list[float], what: str) -> str:
    """Both curves: torch's wide and pale, the server's thin upon it."""
    top = max(*torchs, *servers) * 1.05

    def line(curve: list[float], style: str) -> str:
        across = (WIDTH - LEFT - TOP) / (len(curve) - 1)
        points = " ".join(
            f"{LEFT + across * step:.1f},{_height(loss, top):.1f}"
            for step, loss in enumerate(curve)
        )
        return f'<polyline fill="none" {style} points="{points}"/>'

    font = 'font-family="sans-serif" font-size="12" fill="#555"'
    ticks = [top * part / 4 for part in range(5)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {font}>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - TOP}" fill="none" stroke="#999"/>',
            *(_text(12, _height(tick, top) + 4, f"{tick:.2f}") for tick in ticks),
            _text(LEFT, HEIGHT - 20, "step 1"),
            _text(WIDTH - 66, HEIGHT - 20, f"step {len(torchs)}"),
            _text(WIDTH / 2 - 40, HEIGHT - 20, what),
            line(torchs, 'stroke="#f2b179" stroke-width="8" stroke-linecap="round"'),
            line(servers, 'stroke="#1f4e8c" stroke-width="2"'),
            _text(WIDTH - 230, 40, "wide: gradients of torch"),
            _text(WIDTH - 230, 58, "thin: gradients of the server"),
            "</svg>\n",
        ]
    )


def _height(loss: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * loss / top


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:g}" y="{y:.4g}">{words}</text>'
