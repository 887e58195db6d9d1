"""What a drafter class offers that can be trained: a module that turns text and the target's states into a loss."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from outrider.draft.contract import DrafterOptions, TargetInfo


@dataclass(frozen=True, slots=True, eq=False)
class TrainBatch:
    """Texts to learn from, padded on the right.

    Args:
        ids: `[rows, n]` int64.
        answers: `[rows, n]` bool, which tokens are learnt: those of answers, never padding.
        states: for every layer that the trainee asked for `[rows, n, hidden]`, numbered as in `Needs.hidden`.
    """

    ids: torch.Tensor
    answers: torch.Tensor
    states: Mapping[int, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """How wrong a trainee was on a batch.

    Args:
        total: a scalar, what is minimised; zero where nothing in the batch is learnt.
        loss: `[depths]`, the sum over what was learnt at each depth of the draft, without gradient.
        right: `[depths]`, how many of the target's likeliest tokens were the trainee's too.
        count: `[depths]`, how many were learnt.
    """

    total: torch.Tensor
    loss: torch.Tensor
    right: torch.Tensor
    count: torch.Tensor


class Trainee(nn.Module, ABC):
    """Something that is trained: its parameters with `requires_grad`, and a loss as its forward.

    Attributes:
        layers: the target's hidden states that it learns from, numbered as in `Needs.hidden`.
    """

    layers: tuple[int, ...]

    @abstractmethod
    def forward(self, batch: TrainBatch) -> Losses:
        """Return the losses of a batch."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what the drafter loads to an existing folder, each file whole or not at all."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainStart:
    """What a trainee is made of.

    Args:
        target: what it will draft for, with its parts.
        model: how the target is called where heads are described.
        counts: `[vocab]` int64, how often each token is learnt in the data.
        heads: a folder of earlier heads to go on from, or None.
    """

    target: TargetInfo
    model: str
    counts: torch.Tensor
    heads: Path | None = None


@runtime_checkable
class Trains(Protocol):
    """What a drafter class offers that can be trained.

    Attributes:
        TrainOptions: options of its training.
        trained_as: the drafter's option that takes the folder of what was trained.
    """

    TrainOptions: ClassVar[type[DrafterOptions]]
    trained_as: ClassVar[str]

    @classmethod
    def trainee(cls, start: TrainStart, options: Any) -> Trainee:
        """Make what is trained, in float32.

        Args:
            start: what it is made of.
            options: validated `TrainOptions`.

        Raises:
            InputError: the target can't be learnt from in this way, or an option contradicts it.
        """
        ...
