"""What there is no record of."""

from __future__ import annotations

from collections.abc import Sequence


class NotRun(LookupError):
    """A table or figure is made from records, and the one it needs is not there.

    Args:
        title: of the table or figure.
        label: the LaTeX label of what it would stand beside.
        commands: what to type to get the record, in order.
        needs: what these take: a GPU and days, a data set, minutes.
    """

    def __init__(self, title: str, label: str, commands: Sequence[str], needs: str = "") -> None:
        self.title, self.label, self.commands, self.needs = title, label, tuple(commands), needs
        super().__init__(f"{title}: not run. {needs + '. ' if needs else ''}To run it: {'; '.join(self.commands)}")

    def to_markdown(self) -> str:
        """A page that says so."""
        lines = [
            f"# {self.title}",
            "",
            f"**Not run.** {self.needs + '. ' if self.needs else ''}In the paper: `{self.label}`. To run it:",
            "",
        ]
        return "\n".join([*lines, "```console", *self.commands, "```"]) + "\n"
