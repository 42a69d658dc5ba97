"""For each network in one line why it is as it is: written by hand, after looking."""

from __future__ import annotations

WHY: dict[str, str] = {
    "ppocr-recognition": "Not reached and fitted badly: squeeze-and-excite, Concat and a flatten "
    "that asks for its channels leave 7 places alone, so the others lose more.",
    "ppocr-direction": "Not reached: 20 of its convolutions end in squeeze-and-excite, 8 in "
    "residual streams; 83 % of the multiplications are the least possible.",
    "page-orientation": "Fitted well to 75 %; at 50 % little data, and 4 places not reached.",
    "yolox-nano": "Not reached: Concat (29 places) and residual streams (10); what is left is cut "
    "far too deep, and 40 photographs are little data.",
    "resnet20": "Residual streams (10 places) are not reached, so its inner layers lose more.",
    "person-detector": "Many channels are dead: three quarters cost nothing.",
}
