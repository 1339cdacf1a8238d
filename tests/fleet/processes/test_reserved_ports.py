from __future__ import annotations

import socket

import pytest

from p2pclust.lab.testbed.processes.children import ReservedPorts


def bound(port: int, *, reuse: bool) -> bool:
    """Whether another socket can be bound to this port now."""
    with socket.socket() as other:
        if reuse:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_on_linux_they_are_held_and_a_peer_can_bind_them() -> None:
    ports = ReservedPorts(3)
    assert len(set(ports.numbers)) == 3
    assert not any(bound(port, reuse=False) for port in ports.numbers)
    assert all(bound(port, reuse=True) for port in ports.numbers)
    ports.release()
    assert all(bound(port, reuse=False) for port in ports.numbers)


def test_elsewhere_they_are_free_when_a_peer_binds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    ports = ReservedPorts(3)
    assert len(set(ports.numbers)) == 3
    assert all(bound(port, reuse=False) for port in ports.numbers)
    ports.release()
