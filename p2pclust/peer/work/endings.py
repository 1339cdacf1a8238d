"""Cancelled jobs: the last state has a fact with its owner's signature, and is adopted by no peer without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.tasks import EndRules
from p2pclust.peer.work.states import BlobAccess, bare_state
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.signatures import fact_statement, verified

if TYPE_CHECKING:
    from p2pclust.peer.work.secrets import Secrets


class NotKnownError(WireError):
    """Whether a state is right cannot be said here."""


def is_cancelled(state: JobState) -> bool:
    return state.status == "failed" and state.reason.startswith(CANCELLED)


def signed_cancel(cancel: CancelProof, ends: EndRules | None, secrets: Secrets | None) -> CancelProof:
    """Return a cancel that other peers can check.

    One that is not signed with a key on the fleet roster is signed by this device: every peer may cancel a job.
    """
    if ends is None or cancel.revocation or secrets is None or _is_signed(cancel, ends, secrets):
        return cancel
    own = replace(cancel, owner=ends.me, version=0)
    return replace(own, signature=secrets.sign(_statement(own, secrets)))


def check_cancel(cancel: CancelProof, ends: EndRules, secrets: Secrets) -> None:
    """Raise WireError if a cancel is of another job, and NotKnownError if this peer cannot know that it is genuine."""
    if cancel.revocation:
        if cancel.owner not in ends.revoked:
            raise NotKnownError(f"this peer does not know that {cancel.owner} was revoked and ends the job")
    elif cancel.key not in ends.keys:
        raise WireError("it was cancelled with the cancel of another job")
    elif not _is_signed(cancel, ends, secrets):
        raise NotKnownError(
            f"its cancel is not signed with the key that {cancel.owner} has on this peer's fleet roster"
        )


def _is_signed(cancel: CancelProof, ends: EndRules, secrets: Secrets) -> bool:
    public = ends.devices.get(cancel.owner, b"")
    return bool(cancel.signature) and verified(public, cancel.signature, _statement(cancel, secrets))


def _statement(cancel: CancelProof, secrets: Secrets) -> bytes:
    return fact_statement(fleet_id_of(secrets.fleet), cancel.owner, cancel.key, cancel.version, cancel.value)


def check_end(task: tasks.CheckState, blobs: BlobAccess, secrets: Secrets | None) -> tasks.Outcome:
    """Say whether a state that is called final is one, and if its job was cancelled, whether a peer has signed that.

    Of jobs without verify. No protocol is needed: a peer may lack one.
    """
    try:
        state = bare_state(task.state, blobs.read)
        if is_cancelled(state) and task.ends is not None:
            assert secrets is not None
            cancel = CancelProof.decode(state.proof)
            if state.reason != f"{CANCELLED}{cancel.by}"[:MAX_REASON]:
                raise WireError("its reason is not that of its cancel")
            check_cancel(cancel, task.ends, secrets)
    except NotKnownError as error:
        return tasks.NoResult(str(error))
    except WireError as error:
        return tasks.StateRefuted(str(error)[:MAX_REASON])
    return tasks.StateChecked(state.status != "running")
