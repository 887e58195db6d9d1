"""The public names of outrider; `import outrider` gives them all."""

from outrider.decode.explain import Explanation, Parting, explain
from outrider.decode.row import Step
from outrider.decode.stats import Stats
from outrider.draft.batch import PADDING, TreeBatch
from outrider.draft.capabilities import Capabilities
from outrider.draft.choices import Choices
from outrider.draft.contract import (
    API,
    MAX_NODES,
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftView,
    Outcome,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    TokenView,
)
from outrider.draft.cost import Costs, StepCost, best_size, typical_cost
from outrider.draft.drawing import draw_choices, draw_trees
from outrider.draft.expansion import Expansion, Guess, Law, Shape, Sharpness, raw_scores
from outrider.draft.features import Features, Needs, layer_output
from outrider.draft.fixed import grow_choices
from outrider.draft.guard import Guard
from outrider.draft.heads import (
    HeadsExport,
    HeadsFolder,
    HeadsReport,
    HeadsTarget,
    ReadsHeads,
    WritesHeads,
    heads_folder,
)
from outrider.draft.laws import POINT, DraftLaws
from outrider.draft.merge import merge
from outrider.draft.training import Losses, TrainBatch, Trainee, Trains, TrainStart
from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import (
    ConfigError,
    DrafterError,
    FetchError,
    GenerationError,
    InputError,
    ModelError,
    OutriderError,
    PluginError,
    UnknownDrafterError,
    first_line,
)
from outrider.generation import Result, Stream, generate, generate_batch, stream
from outrider.hf_generate import Decoder, decoder
from outrider.plugins.heads import export_heads, inspect_heads, not_heads_of
from outrider.plugins.hookspecs import hookimpl
from outrider.plugins.offers import find_heads
from outrider.plugins.registry import DrafterRecord, registry
from outrider.plugins.words import DrafterWord, choose, make_drafter
from outrider.target.attention import PositionTable
from outrider.target.branches import Branches
from outrider.target.cache import RowCache
from outrider.target.follower import Follower
from outrider.target.groups import Groups
from outrider.target.inspection import Inspection, inspect
from outrider.target.load import load, place_of
from outrider.target.model import Target
from outrider.turns import Session, session


def drafters() -> list[DrafterRecord]:
    """Return every drafter that can be picked by name, with where it comes from."""
    return registry().drafters()


__all__ = (
    "API",
    "MAX_NODES",
    "PADDING",
    "POINT",
    "ROOT",
    "Branches",
    "Capabilities",
    "Choices",
    "ConfigError",
    "Costs",
    "Decoder",
    "DraftBatch",
    "DraftLaws",
    "DraftTree",
    "DraftView",
    "Drafter",
    "DrafterError",
    "DrafterOptions",
    "DrafterRecord",
    "DrafterWord",
    "Expansion",
    "Explanation",
    "Features",
    "FetchError",
    "Follower",
    "GenerationError",
    "Groups",
    "Guard",
    "Guess",
    "HeadsExport",
    "HeadsFolder",
    "HeadsReport",
    "HeadsTarget",
    "InputError",
    "Inspection",
    "Law",
    "Losses",
    "ModelError",
    "Needs",
    "Outcome",
    "OutcomeBatch",
    "OutriderError",
    "Parting",
    "PluginError",
    "PositionTable",
    "ReadsHeads",
    "Result",
    "RowCache",
    "RowDrafter",
    "RowStart",
    "Session",
    "Shape",
    "Sharpness",
    "Stats",
    "Step",
    "StepCost",
    "Stream",
    "Target",
    "TargetInfo",
    "TokenView",
    "TrainBatch",
    "TrainStart",
    "Trainee",
    "Trains",
    "TreeBatch",
    "UnknownDrafterError",
    "WritesHeads",
    "best_size",
    "choose",
    "decoder",
    "drafters",
    "draw_choices",
    "draw_trees",
    "explain",
    "export_heads",
    "find_heads",
    "first_line",
    "generate",
    "generate_batch",
    "grow_choices",
    "heads_folder",
    "hookimpl",
    "inspect",
    "inspect_heads",
    "layer_output",
    "load",
    "make_drafter",
    "merge",
    "not_heads_of",
    "place_of",
    "raw_scores",
    "registry",
    "session",
    "stream",
    "typical_cost",
)
