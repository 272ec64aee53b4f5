"""The plane's own key: made once, private, and the same for everybody who loads it."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from joserfc import jws
from joserfc.jwk import ECKey

from controlplane.services.signing import KEY_FILE, load_signer


def test_many_processes_that_start_at_once_end_up_with_one_key_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    with ThreadPoolExecutor(8) as many:
        signers = list(many.map(lambda _: load_signer(folder), range(16)))
    assert len({signer.thumbprint for signer in signers}) == 1
    assert [file.name for file in folder.iterdir()] == [KEY_FILE], "no draft is left behind"
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_it_signs_is_verified_by_the_public_part_alone(tmp_path: Path) -> None:
    signer = load_signer(tmp_path)
    (public,) = signer.public_keys()
    assert "d" not in public
    opened = jws.deserialize_compact(signer.sign("directives+jws", b"{}"), ECKey.import_key({**public}))
    assert (opened.payload, opened.headers()["kid"]) == (b"{}", signer.thumbprint)
