"""A model and its data files, written beside their places; then one rename decides.

    drafts  →  data files get names that nothing has  →  the model takes its place
            →  the data file of the old model is deleted, if only that needed it

A kill before the rename leaves the old model with its data, one after it the new model with its.
At most a draft, which the next run removes, or a data file that no model names is left behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from onnxfde.errors import OutputError
from onnxfde.graph.drafts import Draft, draft, naming_target, only_run_in
from onnxfde.graph.files import check_target
from onnxfde.graph.old_weights import OldWeights, settled
from onnxfde.graph.overwriting import data_files


@dataclass(eq=False)
class NewFiles:
    """Drafts of a model and its data files."""

    path: Path
    """Where the model goes."""
    drafts: ExitStack
    model: Draft | None = None
    data: list[tuple[Draft, Path]] = field(default_factory=list)

    def new_model(self) -> Draft:
        """The draft of the model."""
        self.model = self.drafts.enter_context(draft(self.path))
        return self.model

    def new_data(self) -> Draft:
        """The draft of a data file, which `add` names."""
        like = next(iter(data_files(self.path)), None)
        return self.drafts.enter_context(draft(self.path, like))

    def add(self, data: Draft, target: Path) -> None:
        """Name a complete data file; it must lie in the folder of its model, whatever links say."""
        folder = self.path.parent
        data.flush()
        if target == self.path:
            raise OutputError(f"{target} is the name of a data file, too; choose another name")
        if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(folder)):
            raise OutputError(f"{target} would not lie in {folder}: a link leads out of it")
        self.data.append((data, target))

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        every = [new for new, _ in self.data] + ([self.model] if self.model else [])
        return sum(new.bytes for new in every)

    @property
    def targets(self) -> tuple[Path, ...]:
        """All files that are written."""
        return (self.path, *(target for _, target in self.data))

    @property
    def data_names(self) -> tuple[str, ...]:
        """The names of the data files, relative to the model."""
        return tuple(os.path.relpath(target, self.path.parent) for _, target in self.data)

    def commit(self) -> tuple[OldWeights, ...]:
        """Put all files in place; returns the data files of the old model that stay."""
        if self.model is None:
            return ()
        with only_run_in(self.path.parent) as alone:
            for new, target in [pair for pair in self.data if not pair[0].is_at(pair[1])]:
                new.create(target)
            old = data_files(self.path)
            self.model.replace(self.path)
            return tuple(settled(self.path, old, data_files(self.path), alone))


@contextmanager
def new_files(path: Path) -> Iterator[NewFiles]:
    """Drafts of a model and its data; what is not put in place is removed."""
    check_target(path)
    with naming_target(path), ExitStack() as drafts:
        yield NewFiles(path, drafts)
