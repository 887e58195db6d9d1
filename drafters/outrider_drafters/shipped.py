"""The heads that come with the built-in drafters, for the embedded models."""

from pathlib import Path

from outrider import hookimpl

ROOT = Path(__file__).parent / "heads"


@hookimpl
def offer_heads(offer):  # type: ignore[no-untyped-def]
    """Offer every folder `heads/MODEL/DRAFTER`."""
    for folder in sorted(ROOT.glob("*/*/")):
        offer(folder.name, folder)
