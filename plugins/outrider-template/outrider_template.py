"""The drafter `template`: what followed the text's last token before may follow it again."""

from pydantic import Field

import outrider

_REACH = 256
"""How far back is looked, so that a step costs the same however long the text is."""


class TemplateOptions(outrider.DrafterOptions):
    """Options of `template`."""

    draft_tokens: int = Field(default=8, ge=1, le=64, description="longest draft")


class Template(outrider.RowDrafter[TemplateOptions]):
    """Copies what followed the last token before."""

    name = "template"
    requires_api = (0, 1)
    Options = TemplateOptions
    capabilities = outrider.Capabilities()  # chains of chosen tokens

    def propose_row(self, view: outrider.DraftView) -> outrider.DraftTree:
        """Propose the tokens after the latest place of the row's last token, as far as the row has room."""
        tail = view.ids[-_REACH:]
        places = [place for place, token in enumerate(tail[:-1]) if token == tail[-1]]
        following = tail[places[-1] + 1 :] if places else []
        return outrider.DraftTree.chain(following[: min(self.options.draft_tokens, view.max_depth, view.max_nodes)])


@outrider.hookimpl
def register_drafters(register):  # type: ignore[no-untyped-def]
    """Register `template`."""
    register(Template)
