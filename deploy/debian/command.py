#!/usr/lib/tumira/bin/python3
"""`tumira` as the service runs it: with its settings and, when root calls it, as its user.

Root would leave files in the data directory that the service cannot use. Another user, who may not read the
settings, works with a data directory and settings of their own.
"""

import os
import pwd
from pathlib import Path

from dotenv import dotenv_values

from tumira.cli import main

USER = "tumira"
SETTINGS = Path("/etc/tumira/tumira.env")
DATA = "/var/lib/tumira"


def become_the_service() -> None:
    """Give up the rights of root."""
    user = pwd.getpwnam(USER)
    os.initgroups(USER, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ |= {"HOME": user.pw_dir, "USER": USER, "LOGNAME": USER}
    if not os.access(".", os.R_OK | os.X_OK):
        os.chdir(user.pw_dir)


if os.geteuid() == 0:
    become_the_service()
if os.access(SETTINGS, os.R_OK):
    # As systemd reads it: a $ is only a $.
    for name, value in dotenv_values(SETTINGS, interpolate=False).items():
        os.environ.setdefault(name, value or "")
    os.environ.setdefault("TUMIRA_DATA_DIR", DATA)
main(prog_name="tumira")
