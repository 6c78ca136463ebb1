"""How does a program that we start end when we do, however we end?"""

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does before it becomes a program: have the kernel signal it when we are gone.

    The kernel forgets that wish when a process changes its user, so it has to be made after that.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        # A shell that starts us in the background lets us ignore SIGINT, and a child inherits that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # If the parent died before the wish was made, nobody will send the signal.
        if prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(1)

    return prepare
