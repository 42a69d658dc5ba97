"""For each network in one line why it is as it is: written by hand, after looking."""

from __future__ import annotations

WHY: dict[str, str] = {
    "ppocr-recognition": "Too little data and not reached: squeeze-and-excite, Concat and a "
    "flatten that asks for its channels leave 7 places alone, so the others have to lose more.",
    "ppocr-direction": "Not reached: 20 of its convolutions end in squeeze-and-excite, 8 in "
    "residual streams; 83 % of the multiplications are the least possible.",
}
