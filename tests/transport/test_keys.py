from __future__ import annotations

import hashlib
import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from tests.throwaway import throwaway_fleet

from p2pclust.errors import UsageError
from p2pclust.lab.testbed.processes.children import write_fleet
from p2pclust.transport import keys
from p2pclust.transport import roster as roster_module
from p2pclust.transport.bundle import Bundle, check_enrolled, check_name, load_bundle, load_roster
from p2pclust.transport.key_files import is_sealed
from p2pclust.transport.keys import add_devices, init_fleet
from p2pclust.transport.roster import Roster


def add_device(directory, name, passphrase=None):
    return add_devices(directory, [name], passphrase)[0]


@pytest.fixture
def fleet(tmp_path):
    """A fleet of a and b on disk: its directory and public key."""
    public = init_fleet(tmp_path / "fleet")
    add_device(tmp_path / "fleet", "a")
    add_device(tmp_path / "fleet", "b")
    return tmp_path / "fleet", public


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_peers_of_a_fleet_sign_their_facts(fleet):
    directory, public = fleet
    assert load_roster(directory / "roster.json", public).signs_facts
    assert load_bundle(directory / "a.bundle").roster.signs_facts
    add_device(directory, "c")
    assert load_roster(directory / "roster.json", public).signs_facts


def test_who_may_ask_at_control_addresses_stays_as_the_fleet_was_made(tmp_path):
    for directory, operators_only in ((tmp_path / "new", True), (tmp_path / "open", False)):
        public = init_fleet(directory, operators_only=operators_only)
        add_device(directory, "a")
        assert load_roster(directory / "roster.json", public).operators_only is operators_only


def test_a_fleet_goes_to_disk_and_back(fleet):
    directory, public = fleet
    roster = load_roster(directory / "roster.json", public)
    bundle = load_bundle(directory / "a.bundle")
    assert roster.names == ("a", "b")
    assert roster.serial == 2
    assert bundle.fleet_public == public
    assert roster.name_of(bundle.curve_public) == "a"
    assert roster.curve_key("a") == bundle.curve_public
    assert roster.peers[0].sign_public == bundle.sign_public
    assert roster.name_of(b"x" * 40) is None
    assert roster.curve_key("c") is None
    check_enrolled(bundle, roster)
    assert roster.to_bytes() == (directory / "roster.json").read_bytes()
    assert bundle.to_bytes() == (directory / "a.bundle").read_bytes()


def test_the_roster_is_sorted_and_its_serial_rises(fleet):
    directory, public = fleet
    add_device(directory, "0-first")
    roster = load_roster(directory / "roster.json", public)
    assert (roster.names, roster.serial) == (("0-first", "a", "b"), 3)


def test_secrets_are_readable_by_the_owner_alone(fleet):
    directory, _ = fleet
    (directory / ".c.bundle.tmp").touch(mode=0o666)  # left by a crash
    previous = os.umask(0)
    try:
        path = add_device(directory, "c")
    finally:
        os.umask(previous)
    assert path == directory / "c.bundle"
    assert mode(path) == mode(directory / "fleet.key") == 0o600
    assert mode(directory) == 0o700
    assert mode(directory / "roster.json") == 0o644


def test_secrets_stay_out_of_repr(fleet):
    bundle = load_bundle(fleet[0] / "a.bundle")
    for secret in (bundle.curve_secret, bundle.sign_secret):
        assert repr(secret) not in repr(bundle)


@pytest.mark.usefixtures("quick_passphrases")
def test_a_passphrase_locks_the_signing_key(tmp_path):
    init_fleet(tmp_path, "correct horse")
    assert is_sealed(tmp_path / "fleet.key")
    before = files(tmp_path)
    with pytest.raises(UsageError, match="is encrypted: give its passphrase"):
        add_device(tmp_path, "a")
    with pytest.raises(UsageError, match="the passphrase is wrong"):
        add_device(tmp_path, "a", "wrong horse")
    assert files(tmp_path) == before
    add_device(tmp_path, "a", "correct horse")


def test_a_passphrase_that_is_not_needed_is_refused(fleet):
    with pytest.raises(UsageError, match="is not encrypted: omit the passphrase"):
        add_device(fleet[0], "c", "horse")
    with pytest.raises(UsageError, match="the passphrase has 11 characters: choose one of at least 12"):
        init_fleet(fleet[0] / "new", "eleven_long")
    assert files(fleet[0] / "new").keys() <= {"roster.json"}


def test_a_directory_holds_one_fleet(fleet):
    before = files(fleet[0])
    with pytest.raises(UsageError, match=r"already holds a fleet \(fleet.key\)"):
        init_fleet(fleet[0])
    (fleet[0] / "fleet.key").unlink()
    with pytest.raises(UsageError, match=r"already holds a fleet \(roster.json\)"):
        init_fleet(fleet[0])
    assert files(fleet[0]).items() < before.items()


def test_a_name_is_given_once(fleet):
    before = files(fleet[0])
    with pytest.raises(UsageError, match="the name 'a' is taken"):
        add_device(fleet[0], "a")
    assert files(fleet[0]) == before
    with pytest.raises(UsageError, match="'x' is given twice"):
        throwaway_fleet(["x", "y", "x"])


@pytest.mark.parametrize("name", ["a", "0", "meter-1", "a.b_c", "a" * 63])
def test_names_that_can_be_used(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "_a", "a b", "a/b", "../a", "ä", "a\n", "a" * 64])
def test_names_that_cannot(tmp_path, name):
    init_fleet(tmp_path)
    before = files(tmp_path)
    with pytest.raises(UsageError, match="is invalid") as caught:
        add_device(tmp_path, name)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == before


def test_missing_files_are_named(tmp_path, fleet):
    with pytest.raises(UsageError, match=r"fleet roster .*roster.json does not exist"):
        load_roster(tmp_path / "roster.json", bytes(32))
    with pytest.raises(UsageError, match=r"device bundle .*x.bundle does not exist"):
        load_bundle(tmp_path / "x.bundle")
    with pytest.raises(UsageError, match="does not exist: make the fleet"):
        add_device(tmp_path / "nowhere", "a")
    with pytest.raises(UsageError, match=r"fleet signing key .*fleet.key does not exist"):
        add_device(tmp_path, "a")
    (fleet[0] / "roster.json").unlink()
    with pytest.raises(UsageError, match=r"fleet roster .*roster.json does not exist"):
        add_device(fleet[0], "c")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_bundle(tmp_path)
    with pytest.raises(UsageError, match="cannot be used: Not a directory"):
        add_device(fleet[0] / "a.bundle", "a")


def change(document, path, value):
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


OTHER = throwaway_fleet(["other"])[1]["other"]


def _shown(value: object) -> str:
    """Name a case by its place only: the values are fresh keys, and workers must agree on the names."""
    return ".".join(map(str, value)) if isinstance(value, list) and value else "value"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["fleet_id"], "0" * 32),
        (["serial"], 3),
        (["serial"], True),
        (["serial"], 2.0),
        (["peers"], []),
        (["peers", 0, "name"], "c"),
        (["peers", 0, "name"], "b"),
        (["peers", 0, "name"], "../a"),
        (["peers", 0, "name"], 7),
        (["peers", 0, "curve_public"], OTHER.curve_public.decode()),
        (["peers", 0, "curve_public"], "#" * 40),
        (["peers", 0, "curve_public"], "ä" * 20),
        (["peers", 0, "curve_public"], "~" * 40),
        (["peers", 0, "sign_public"], OTHER.sign_public.hex()),
        (["peers", 0, "sign_public"], OTHER.sign_public.hex().upper()),
        (["peers", 0, "extra"], "x"),
        (["peers", 0], "a"),
        (["signature"], "00" * 64),
        (["signature"], "0"),
        (["signature"], ""),
        (["extra"], "x"),
    ],
    ids=_shown,
)
def test_a_roster_that_was_changed_is_refused(fleet, path, value):
    directory, public = fleet
    document = json.loads((directory / "roster.json").read_text())
    change(document, path, value)
    (directory / "roster.json").write_text(json.dumps(document))
    with pytest.raises(UsageError) as caught:
        load_roster(directory / "roster.json", public)
    assert "copy it again" in str(caught.value)
    assert "\n" not in str(caught.value)
    before = files(directory)
    with pytest.raises(UsageError):
        add_device(directory, "c")
    assert files(directory) == before


def test_peers_in_another_order_are_another_roster(fleet):
    directory, public = fleet
    document = json.loads((directory / "roster.json").read_text())
    document["peers"].reverse()
    (directory / "roster.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match="does not carry the signature of this fleet"):
        load_roster(directory / "roster.json", public)


def test_another_fleets_roster_is_refused(tmp_path, fleet):
    roster, bundles = throwaway_fleet(["a", "b"])
    write_fleet(tmp_path / "other", roster, bundles)
    with pytest.raises(UsageError, match="does not carry the signature of this fleet"):
        load_roster(tmp_path / "other" / "roster.json", fleet[1])
    with pytest.raises(UsageError, match="the key of peer 'a' is not on the fleet roster"):
        check_enrolled(bundles["a"], load_roster(fleet[0] / "roster.json", fleet[1]))


def test_a_signed_roster_with_a_name_or_key_twice_is_refused(tmp_path):
    key = keys.generate()
    public = key.public_key().public_bytes_raw()
    one, other = (keys.new_device(name, public)[0] for name in ("one", "two"))
    for twice in ((one, one), (one, keys.RosterPeer("one", other.curve_public, other.sign_public))):
        (tmp_path / "roster.json").write_bytes(roster_module.sign(key, 1, twice).to_bytes())
        with pytest.raises(UsageError, match="lists a name or a key twice"):
            load_roster(tmp_path / "roster.json", public)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 100_000, b"x" * (5 * 1024 * 1024)])
def test_files_that_are_something_else_are_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    for load in (lambda: load_roster(path, bytes(32)), lambda: load_bundle(path)):
        with pytest.raises(UsageError) as caught:
            load()
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["name"], "Not A Name"),
        (["name"], None),
        (["curve_public"], OTHER.curve_public.decode()),
        (["curve_secret"], OTHER.curve_secret.decode()),
        (["curve_secret"], "x"),
        (["sign_secret"], "x"),
        (["fleet_public"], "00"),
        (["extra"], "x"),
    ],
    ids=_shown,
)
def test_a_bundle_that_is_damaged_is_refused(fleet, path, value):
    file = fleet[0] / "a.bundle"
    document = json.loads(file.read_text())
    change(document, path, value)
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError):
        load_bundle(file)


@pytest.mark.slow
def test_a_guess_of_the_passphrase_costs_as_much_as_owasp_asks(tmp_path):
    """The key opens with scrypt at N = 2**17, r = 8, p = 1, computed here by hashlib, and with nothing weaker."""
    public = init_fleet(tmp_path, "correct horse")
    document = json.loads((tmp_path / "fleet.key").read_text())
    stretched = hashlib.scrypt(
        b"correct horse", salt=bytes.fromhex(document["salt"]), n=2**17, r=8, p=1, maxmem=2**28, dklen=32
    )
    sealed = bytes.fromhex(document["sealed"])
    secret = ChaCha20Poly1305(stretched).decrypt(bytes(12), sealed, document["format"].encode())
    assert Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == public
    weaker = hashlib.scrypt(b"correct horse", salt=bytes.fromhex(document["salt"]), n=2**14, r=8, p=1, dklen=32)
    with pytest.raises(InvalidTag):
        ChaCha20Poly1305(weaker).decrypt(bytes(12), sealed, document["format"].encode())


@pytest.mark.usefixtures("quick_passphrases")
@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_two_fleets_with_one_passphrase_share_no_byte_of_their_keys(tmp_path, passphrase):
    init_fleet(tmp_path / "a", passphrase)
    init_fleet(tmp_path / "b", passphrase)
    a, b = (json.loads((tmp_path / name / "fleet.key").read_text()) for name in "ab")
    assert a.keys() == b.keys()
    assert all(a[name] != b[name] for name in a if name != "format")


def _with_key(text, **changes):
    return json.dumps({**json.loads(text), **changes})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "is not a fleet signing key"),
        (lambda text: _with_key(text, format="p2pclust fleet key 0"), "is not a fleet signing key"),
        (lambda text: _with_key(text, salt="00"), "is not a fleet signing key"),
        (lambda text: _with_key(text, key="00"), "is damaged: restore the key"),
        (lambda text: _with_key(text, key="no digits"), "is damaged: restore the key"),
    ],
    ids=["PEM", "other format", "half sealed", "too short", "no digits"],
)
def test_a_file_that_is_no_signing_key_is_refused(fleet, damage, words):
    path = fleet[0] / "fleet.key"
    path.write_text(damage(path.read_text()))
    with pytest.raises(UsageError, match=words):
        add_device(fleet[0], "c")


@pytest.mark.slow
def test_a_sealed_key_that_was_changed_is_refused(tmp_path):
    init_fleet(tmp_path, "correct horse")
    path = tmp_path / "fleet.key"
    whole = path.read_text()
    sealed = bytearray.fromhex(json.loads(whole)["sealed"])
    sealed[5] ^= 1
    path.write_text(_with_key(whole, sealed=bytes(sealed).hex()))
    with pytest.raises(UsageError, match="the passphrase is wrong or the file is damaged"):
        add_device(tmp_path, "a", "correct horse")


class Crashed(BaseException):
    """The machine stopped here."""


@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_before_a_rename_leaves_the_old_files_and_a_second_try_succeeds(fleet, monkeypatch, at):
    directory, public = fleet
    before = files(directory)
    renames = []
    replace = pathlib.Path.replace

    def crash(self, target):
        renames.append(target)
        if len(renames) == at:
            raise Crashed
        return replace(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", crash)
    with pytest.raises(Crashed):
        add_device(directory, "c")
    after = files(directory)
    assert {name: after[name] for name in before} == before
    assert load_roster(directory / "roster.json", public).names == ("a", "b")
    monkeypatch.undo()
    check_enrolled(load_bundle(add_device(directory, "c")), load_roster(directory / "roster.json", public))
    assert not [name for name in files(directory) if name.endswith(".tmp")]


def test_a_full_disk_is_a_usage_error_and_leaves_nothing(fleet, monkeypatch):
    before = files(fleet[0])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        add_device(fleet[0], "c")
    assert files(fleet[0]) == before


def test_an_operator_is_refused_as_a_peer_before_anything_starts(fleet):
    directory, public = fleet
    add_devices(directory, ["desk"], role="operator")
    bundle, roster = load_bundle(directory / "desk.bundle"), load_roster(directory / "roster.json", public)
    with pytest.raises(UsageError, match="desk is enrolled as operator: it can ask peers, but cannot be one"):
        check_enrolled(bundle, roster)


def test_a_throwaway_fleet_is_a_fleet_like_any_other(tmp_path):
    roster, bundles = throwaway_fleet(f"peer-{number:02}" for number in range(20))
    write_fleet(tmp_path / "x" / "y", roster, bundles)
    assert list(bundles) == list(roster.names)
    for name, bundle in bundles.items():
        assert isinstance(bundle, Bundle)
        assert load_bundle(tmp_path / "x" / "y" / f"{name}.bundle") == bundle
        assert mode(tmp_path / "x" / "y" / f"{name}.bundle") == 0o600
        check_enrolled(bundle, roster)
    loaded = load_roster(tmp_path / "x" / "y" / "roster.json", bundles["peer-00"].fleet_public)
    assert isinstance(loaded, Roster)
    assert loaded == roster


def test_a_peer_reads_its_keys_without_cryptography(fleet):
    program = (
        "import sys, p2pclust.transport.zeromq\n"
        "from p2pclust.transport.bundle import load_bundle, load_roster\n"
        f"bundle = load_bundle({str(fleet[0] / 'a.bundle')!r})\n"
        f"load_roster({str(fleet[0] / 'roster.json')!r}, bundle.fleet_public, verified=True)\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('cryptography', 'numpy', 'pydantic')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_two_who_enrol_at_once_both_end_on_the_roster(fleet):
    directory, public = fleet
    program = "import sys; from p2pclust.transport.keys import add_devices; add_devices(sys.argv[1], sys.argv[2:])"
    names = ["c", "d", "e"]
    running = [subprocess.Popen([sys.executable, "-c", program, str(directory), name]) for name in names]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert load_roster(directory / "roster.json", public).names == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("last", ["2001-12-31", "2026-11-25"])
def test_keys_that_have_expired_are_not_made_or_enrolled(fleet, tmp_path, last):
    directory, public = fleet
    _, asking = keys.make_request(tmp_path, "c", public.hex())
    before = files(directory)
    for enrol in (
        lambda: add_devices(directory, ["c"], expires=last),
        lambda: keys.enroll(directory, [asking], expires=last),
        lambda: keys.rotate(directory, ["a"], expires=last),
    ):
        with pytest.raises(UsageError, match=f"the last day {last} has passed"):
            enrol()
    assert files(directory) == before


def test_new_keys_do_not_keep_a_last_day_that_has_passed(fleet, monkeypatch):
    directory, _ = fleet
    with monkeypatch.context() as earlier:
        earlier.setattr(keys, "_check_day", lambda expires: None)
        keys.rotate(directory, ["a"], expires="2001-12-31")
    with pytest.raises(UsageError, match=r"the last day 2001-12-31 has passed: .*set --expires"):
        keys.rotate(directory, ["a"])
    keys.rotate(directory, ["a"], expires="")
    assert keys.load_public_roster(directory).by_name["a"].expires == ""
