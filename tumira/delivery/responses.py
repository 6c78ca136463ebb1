"""Carrier response codes and what each means for the message or the bind.

The numbers are the values of command_status in SMPP 3.4, section 5.1.3; the reaction to each is our decision.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final

from msgspec import Struct


class CommandStatus(IntEnum):
    """The values of command_status, by the names of the standard without `ESME_`."""

    ROK = 0x00
    RINVMSGLEN = 0x01
    RINVCMDLEN = 0x02
    RINVCMDID = 0x03
    RINVBNDSTS = 0x04
    RALYBND = 0x05
    RINVPRTFLG = 0x06
    RINVREGDLVFLG = 0x07
    RSYSERR = 0x08
    RINVSRCADR = 0x0A
    RINVDSTADR = 0x0B
    RINVMSGID = 0x0C
    RBINDFAIL = 0x0D
    RINVPASWD = 0x0E
    RINVSYSID = 0x0F
    RCANCELFAIL = 0x11
    RREPLACEFAIL = 0x13
    RMSGQFUL = 0x14
    RINVSERTYP = 0x15
    RINVNUMDESTS = 0x33
    RINVDLNAME = 0x34
    RINVDESTFLAG = 0x40
    RINVSUBREP = 0x42
    RINVESMCLASS = 0x43
    RCNTSUBDL = 0x44
    RSUBMITFAIL = 0x45
    RINVSRCTON = 0x48
    RINVSRCNPI = 0x49
    RINVDSTTON = 0x50
    RINVDSTNPI = 0x51
    RINVSYSTYP = 0x53
    RINVREPFLAG = 0x54
    RINVNUMMSGS = 0x55
    RTHROTTLED = 0x58
    RINVSCHED = 0x61
    RINVEXPIRY = 0x62
    RINVDFTMSGID = 0x63
    RX_T_APPN = 0x64
    RX_P_APPN = 0x65
    RX_R_APPN = 0x66
    RQUERYFAIL = 0x67
    RINVOPTPARSTREAM = 0xC0
    ROPTPARNOTALLWD = 0xC1
    RINVPARLEN = 0xC2
    RMISSINGOPTPARAM = 0xC3
    RINVOPTPARAMVAL = 0xC4
    RDELIVERYFAILURE = 0xFE
    RUNKNOWNERR = 0xFF


class Action(StrEnum):
    TAKEN = "taken"  # The carrier has it.
    THROTTLED = "throttled"  # Too fast: the message waits in front, and the line slows down.
    TEMPORARY = "temporary"  # Tried again after a while, a few times.
    UNKNOWN = "unknown"  # A number that the standard does not explain: tried once more, then given up.
    LINK = "link"  # The line is at fault, not the message: bind again.
    REFUSED = "refused"  # Given up and paid back.


class ResponseRule(Struct, frozen=True):
    """The reaction to a response; `reason` is why the message ends, if it does; `alarm` logs an error.

    `wait_s` is how long a carrier that throttles asks us to wait.
    """

    action: Action
    reason: str | None = None
    alarm: bool = False
    wait_s: float = 0.0


_TAKEN: Final = ResponseRule(Action.TAKEN)
_THROTTLED: Final = ResponseRule(Action.THROTTLED)
_TEMPORARY: Final = ResponseRule(Action.TEMPORARY, "CARRIER_REJECTED")
_UNKNOWN: Final = ResponseRule(Action.UNKNOWN, "CARRIER_REJECTED")
_LINK: Final = ResponseRule(Action.LINK)
# Only an operator can put these right: the carrier does not know us, or not with this password.
_LINK_ALARM: Final = ResponseRule(Action.LINK, alarm=True)
_RECIPIENT: Final = ResponseRule(Action.REFUSED, "UNKNOWN_SUBSCRIBER")
# The sender's name and the shape of what we send are settings of the carrier: every message would fail so.
_SENDER: Final = ResponseRule(Action.REFUSED, "SENDER_NOT_ALLOWED", alarm=True)
_OURS: Final = ResponseRule(Action.REFUSED, "CARRIER_REJECTED", alarm=True)

_S: Final = CommandStatus
_RULES: Final[Mapping[int, ResponseRule]] = {
    _S.ROK: _TAKEN,
    **dict.fromkeys((_S.RTHROTTLED, _S.RMSGQFUL), _THROTTLED),
    **dict.fromkeys((_S.RSYSERR, _S.RX_T_APPN, _S.RSUBMITFAIL, _S.RINVSCHED), _TEMPORARY),
    **dict.fromkeys((_S.RINVBNDSTS, _S.RALYBND), _LINK),
    **dict.fromkeys((_S.RBINDFAIL, _S.RINVPASWD, _S.RINVSYSID, _S.RINVSYSTYP), _LINK_ALARM),
    **dict.fromkeys((_S.RINVDSTADR, _S.RINVDSTTON, _S.RINVDSTNPI), _RECIPIENT),
    **dict.fromkeys((_S.RINVSRCADR, _S.RINVSRCTON, _S.RINVSRCNPI), _SENDER),
    **dict.fromkeys((_S.RINVMSGLEN, _S.RINVCMDLEN, _S.RINVCMDID, _S.RINVPRTFLG), _OURS),
    **dict.fromkeys((_S.RINVREGDLVFLG, _S.RINVSERTYP, _S.RINVESMCLASS, _S.RINVREPFLAG), _OURS),
    **dict.fromkeys((_S.RINVEXPIRY, _S.RINVDFTMSGID, _S.RX_P_APPN, _S.RX_R_APPN), _OURS),
    **dict.fromkeys((_S.RINVOPTPARSTREAM, _S.ROPTPARNOTALLWD, _S.RINVPARLEN), _OURS),
    **dict.fromkeys((_S.RMISSINGOPTPARAM, _S.RINVOPTPARAMVAL), _OURS),
}


def judge(status: int) -> ResponseRule:
    # The rest of the table belongs to commands that we never send; a carrier that answers a submit with one
    # of them, with 0xFE or 0xFF, or with a number of its own above 0x400, has told us nothing.
    return _RULES.get(status, _UNKNOWN)


def name(status: int) -> str:
    """Return a status as people look it up, `RTHROTTLED (0x58)`."""
    try:
        return f"{CommandStatus(status).name} (0x{status:02X})"
    except ValueError:
        return f"status 0x{status:X}"
