"""No log of what servers say.

The SDK logs what it cannot read, with the text and a traceback, and ``logging`` prints it where
nobody set up any logging. What a server says may be a secret that nobody knows of.
"""

from __future__ import annotations

import logging


class Quiet(logging.Filter):
    """Keeps what the SDK logs in our thread from every handler: it quotes what servers say.

    Other threads' use of the SDK is logged as ever.

    Parameters
    ----------
    thread : int
        Its identifier; 0: none.
    """

    def __init__(self, thread: int = 0) -> None:
        super().__init__()
        self.thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record may be handled."""
        return record.thread != self.thread

    def install(self) -> None:
        """Put it before the loggers that there are; a filter is not handed down to others."""
        for name in list(logging.root.manager.loggerDict):
            if name.partition(".")[0] in ("mcp", "client", "asyncio"):
                logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Take it away."""
        for name in list(logging.root.manager.loggerDict):
            logging.getLogger(name).removeFilter(self)
