"""All exceptions of p2pclust; every message says what is wrong, where, and what to do.

::

    P2PClustError
    ├── UsageError            bad usage or input: exit code 2
    │   └── DataError         a data file, column or row that cannot be used; also a ValueError, as in scikit-learn
    ├── FleetError            the fleet could not finish: exit code 3
    ├── PluginError           the code of a protocol's package raised an exception
    └── WireError             another peer's bytes were malformed: dropped and counted, never raised to a caller

Any other exception that leaves the library is a bug.
"""

from __future__ import annotations


class P2PClustError(Exception):
    """Base of every exception that p2pclust raises on purpose."""

    exit_code = 1


class UsageError(P2PClustError):
    """Bad usage or input; the message says what is wrong, where, and what to do."""

    exit_code = 2


class DataError(UsageError, ValueError):
    """A data file, column or row that cannot be used."""


class FleetError(P2PClustError):
    """The fleet could not finish, for example because it lost its majority."""

    exit_code = 3


class PluginError(P2PClustError):
    """The code of a protocol that another package brings raised an exception; the message names the package."""


class WireError(P2PClustError):
    """Bytes from another peer that do not follow the wire format.

    Never raised to a caller: the receiver drops the message, counts it, and continues.
    """


class LeftOutWarning(UserWarning):
    """The result lacks the rows of some peers: they did not fit, or a privacy gate held them back."""


class SuspectResultWarning(UserWarning):
    """The result may be wrong, for example because hardly any row belongs to one of its centers."""
