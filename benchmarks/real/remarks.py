"""For each network in one line why it is as it is: written by hand, after looking."""

from __future__ import annotations

WHY: dict[str, str] = {
    "ppocr-recognition": "Not reached: squeeze-and-excite, Concat and a flatten that asks for its "
    "channels leave 7 places alone, so the others lose more.",
    "ppocr-direction": "Not reached: 18 of its convolutions end in squeeze-and-excite, 10 in "
    "residual streams; 83 % of the multiplications are the least possible.",
    "page-orientation": "4 places are not reached; which pages it is given changes it by points.",
    "yolox-nano": "Not reached: Concat (29 places) and residual streams (10), so the others lose "
    "far more; 40 photographs to fit to.",
    "resnet20": "Residual streams (10 places) are not reached, so its inner layers lose more.",
    "person-detector": "Three quarters cost nothing: many of its channels are always zero.",
}
