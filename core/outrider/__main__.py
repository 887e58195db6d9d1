"""`python -m outrider`, and the command `outrider`."""

import os
import signal


def main() -> None:
    """Run the command line and exit."""
    # Importing torch and transformers takes seconds, in which Ctrl-C would surface as whatever their own imports make of it.
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from outrider.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
