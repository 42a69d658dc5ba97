"""The fewest neurons that stay within ε, by trying few counts.

    n₀ = 98 % of the neurons,  n_{k+1} = 70 % of n_k         down to the first that fails,
    then bisection between that one and the last that did not, to 1 %

If n₀ fails, a search is not worth it. In large layers n₀ is the most that a fixed amount of work
allows. The counts on the way do not depend on ε, and at each count a
larger ε succeeds if a smaller one does: so a larger ε never leaves more neurons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from onnxfde.neurons.count_trials import CountTrials
from onnxfde.neurons.frontier import Reduced

FIRST_SHARE = 0.98
"""The share of the neurons that is tried first: where it fails, nothing worth the time is to be
gained. Chosen; not tuned."""
NEXT_SHARE = 0.7
"""Each count tried is this share of the last, down to the first that fails. Chosen; not tuned."""
COARSEST = 0.01
"""Bisection ends when its bounds are this share apart. Chosen; not tuned."""
BISECTIONS = math.ceil(math.log2((1 - NEXT_SHARE) / COARSEST))
"""The most counts that bisection tries."""
POLISHED = 1
"""How many counts are tried again afterwards, to lower the error there (`free_search`)."""


@dataclass(frozen=True, eq=False)
class CountSearch:
    """Tries counts below `top`, at which nothing is lost."""

    trials: CountTrials
    top: int

    def within(self, eps: float, merged: Reduced | None) -> Reduced | None:
        """The fewest neurons within ε, if a trial finds any.

        Without evidence, as many neurons as the `merged` layer has are enough without a trial.
        """
        unseen = self.trials.layers.problem.evidence is None
        enough = merged.layer.neurons if merged is not None and unseen else self.top
        meter, coarse = self.trials.meter, self._coarse
        tried = sum(count < enough for count in coarse) + BISECTIONS + POLISHED
        meter.plan(tried, max(map(self.trials.most_steps, coarse), default=1))

        def passes(count: int) -> bool:
            return count >= enough or self._trial(count, eps, enough) is not None

        low = next((count for count in coarse if not passes(count)), 0)
        high = min((count for count in coarse if count > low), default=self.top)
        if coarse and low == coarse[0]:
            meter.give_up(self._why_not(low))
        while high < self.top and high - low > max(1.0, COARSEST * high) and not meter.over:
            count = (low + high) // 2
            low, high = (low, count) if passes(count) else (count, high)
        return self._found.get((high, eps)) if high < enough else None

    def _why_not(self, count: int) -> str:
        """Why nothing more is tried if the first count fails."""
        if count < min(self.top - 1, math.ceil(FIRST_SHARE * self.top)):
            return f"{count:,} neurons, the most for which it takes little, do not stay within ε"
        share = f"{count / self.top:.0%}".replace("%", " %")
        return f"even {share} of the neurons ({count:,}) do not stay within ε"

    @cached_property
    def _coarse(self) -> list[int]:
        """The counts to try first, from the largest that the work allows."""
        first = min(self.top - 1, math.ceil(FIRST_SHARE * self.top), self.trials.most_neurons)
        counts = [first] if first > 0 else []
        while counts and counts[-1] > 1:
            counts.append(math.floor(NEXT_SHARE * counts[-1]))
        return counts

    @cached_property
    def _found(self) -> dict[tuple[int, float], Reduced]:
        """What trials found, by count and ε: what was tried before must not decide."""
        return {}

    @cached_property
    def _failed(self) -> dict[int, float]:
        """The largest ε that failed, by count."""
        return {}

    def _trial(self, count: int, eps: float, enough: int) -> Reduced | None:
        """What a trial at this count finds within ε; what is known already is not tried again."""
        meter = self.trials.meter
        if (count, eps) in self._found:
            return self._found[count, eps]
        if eps <= self._failed.get(count, -1.0) or meter.over:
            return None
        meter.start()
        found = self.trials.within(count, eps)
        if found is not None:
            self._found[count, eps] = found
        elif not meter.cut:
            self._failed[count] = eps
        meter.finish(count if found else enough, self.trials.layers.problem.layer.neurons)
        return found
