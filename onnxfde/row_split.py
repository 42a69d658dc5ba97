"""How the rows of data are used, decided once: to fit to, to choose by, or to judge by.

one permutation of the samples, from one seed
judge    every fifth of them: nothing is fitted to these or chosen by them
choose   of the others every tenth, or every fifth where a loss of the whole model is aimed at
fit      all others
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
SEED = 20
JUDGED = 5
"""One sample in this many is judged by. Chosen: a fifth of a few hundred rows gives an error with a
spread of about a tenth; not tuned."""
CHOSEN = 10
"""Of the others, one in this many is chosen by. Chosen as a common share of validation sets; not
tuned."""
CHOSEN_FOR_LOSS = 5
"""The same where a loss of the whole model is chosen by these rows. Chosen; not tuned."""


class RowSplit(NamedTuple):
    """Which samples are chosen by and judged by; all others are fitted to."""

    choose: Mask
    judge: Mask


def split_rows(samples: int, judged: bool = False, chosen: int = CHOSEN) -> RowSplit:
    """The same samples whenever as many are given: nothing else decides."""
    order = np.random.default_rng(SEED).permutation(samples)
    judge = (order % JUDGED == 0) & judged
    place = order - order // JUDGED - 1 if judged else order
    return RowSplit(~judge & (place % chosen == 0), judge)
