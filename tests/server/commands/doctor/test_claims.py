"""The list of what only hardware can prove, and the advice by status, are about what is there."""

from pathlib import Path

import npucall_server
from npucall.statuses import STATUSES, Fate
from npucall_server.devices.cann.advice import ADVICE, OF_FATE, advice
from npucall_server.devices.cann.claims import Stake, chance_of
from npucall_server.devices.cann.unverified import UNVERIFIED

SERVER = Path(npucall_server.__file__).parent


def test_claims_name_places_that_are_there_and_have_titles_and_keys_of_their_own() -> None:
    places = [place.split(": ") for claim in UNVERIFIED for place in claim.where]
    assert [p for p in places if p[1] not in (SERVER / p[0]).read_text()] == []
    assert len({claim.title for claim in UNVERIFIED}) == len(UNVERIFIED)
    assert len({claim.key for claim in UNVERIFIED}) == len(UNVERIFIED)


def test_every_module_that_calls_c_has_a_claim() -> None:
    folder = SERVER / "devices/cann"
    callers = {p.name for p in folder.glob("*.py") if "ctypes" in p.read_text()}
    declaring = {"__init__.py", "functions.py", "library.py"}
    claimed = {place.split(":")[0].split("/")[-1] for claim in UNVERIFIED for place in claim.where}
    assert callers - declaring - claimed == set()


def test_chances_of_claims_that_nobody_has_seen_multiply() -> None:
    first, *_ = UNVERIFIED
    start = first._replace(stake=Stake.START, chance=0.5)
    fast = first._replace(stake=Stake.FAST, chance=0.25)
    seen = first._replace(stake=Stake.START, chance=0.125, seen="2030-01-01, Ascend910B2: so it is")
    assert chance_of((start, fast, seen), Stake.START) == 0.5
    assert chance_of((start, fast, seen), Stake.START, Stake.FAST) == 0.125
    assert chance_of((), Stake.START) == 1


def test_every_fate_has_advice_which_statuses_without_their_own_have() -> None:
    assert ADVICE.keys() <= STATUSES.keys()
    assert OF_FATE.keys() == set(Fate)
    assert advice(507000) == OF_FATE[Fate.BROKEN]
    assert advice(999999) == OF_FATE[Fate.CALL]
