"""`python -m worker` whose training processes know the fake trainers, for tests only."""

import logging
import os
import sys
from functools import partial
from pathlib import Path

import worker.__main__
from worker.child_process import Host
from worker.intake import make_app
from worker.link import HELLO_SECONDS, HelloThread

CHILD = (sys.executable, str(Path(__file__).with_name("child_with_fakes.py")))


def make_app_with_timeout(*arguments, **named):
    """The worker's application, whose broker waits as long for an acknowledgement as is said."""
    app = make_app(*arguments, **named)
    seconds = os.environ.get("TEST_VISIBILITY_SECONDS")
    if seconds is not None:
        app.conf.broker_transport_options |= {"visibility_timeout": int(seconds)}
        logging.getLogger(__name__).info("visibility timeout %s s", seconds)
    return app


def hello_thread(*arguments, **named):
    """The worker's own, which says hello as often as the environment wants it."""
    seconds = float(os.environ.get("TEST_HELLO_SECONDS", HELLO_SECONDS))
    return HelloThread(*arguments, every_seconds=seconds, **named)


if __name__ == "__main__":
    worker.__main__.HelloThread = hello_thread
    worker.__main__.make_app = make_app_with_timeout
    worker.__main__.Host = partial(Host, command=CHILD)
    sys.exit(worker.__main__.main())
