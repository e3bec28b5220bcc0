"""A project's own patches: read from the current folder and the environment, obeyed, and said."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from scenes import FILES, Scene, changed, entry, make_scene, patch, run
from vllm_patcher import config
from vllm_patcher.config import Config
from vllm_patcher.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scenes import Ran

ONE, TWO = patch(a05="50"), patch(b05="50")
PIN = hashlib.sha256(ONE).hexdigest()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Give an install, a catalog beside it in `own`, and stand in that folder."""
    scene = make_scene(tmp_path)
    scene.catalog(entry("one", ONE), entry("two", TWO), name="own")
    monkeypatch.chdir(tmp_path)
    return scene


def say(scene: Scene, text: str, name: str = config.FILE) -> str:
    path = scene.root / name
    path.write_text(text)
    return str(path)


OWN = 'catalogs = ["own"]\nbuiltin = false\n'


def ids(ran: Ran) -> dict[str, str]:
    return {one["id"]: one["state"] for one in ran.json["patches"]}


@pytest.mark.parametrize(
    ("name", "head"),
    [(config.FILE, ""), (config.PROJECT, "[project]\nname = 'x'\n[tool.vllm-patch]\n")],
)
def test_apply_and_verify_obey_it_and_say_so(here: Scene, name: str, head: str) -> None:
    path = say(here, f'{head}{OWN}patches = ["one"]\n', name)
    ran = here.run("apply")
    assert (ran.code, ran.err) == (0, f"note: as {path} says\n")
    assert ids(here.run("verify", "--json")) == {"one": "applied"}
    assert f"as {path} says" in here.run("verify", "--json").json["notes"]
    assert (here.package / "b.py").read_bytes() == FILES["b.py"]


def test_what_the_command_line_wants_counts(here: Scene) -> None:
    say(here, f'{OWN}patches = ["one"]\n')
    options = ("--no-builtin", "--catalog", "own", "--json")
    assert ids(here.run("apply", "two", *options)) == {"two": "applied"}
    assert ids(here.run("verify", "--no-config", *options)) == {
        "one": "not-applied",
        "two": "applied",
    }
    assert "says" not in here.run("verify", "--kind", "crash", "--no-builtin").err


def test_what_the_command_line_wants_counts_more_than_the_environment(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PATCH_PATCHES", "one")
    ran = here.run("verify", "two", "--no-builtin", "--catalog", "own", "--json")
    assert ids(ran) == {"two": "not-applied"}
    assert "VLLM_PATCH_PATCHES" not in ran.out + ran.err


KINDS: dict[str, Callable[[Path], None]] = {
    "link": lambda path: path.symlink_to("nowhere"),
    "folder": lambda path: path.mkdir(),
    "FIFO": os.mkfifo,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_that_cant_be_read_is_not_passed_over(here: Scene, kind: str) -> None:
    path = here.root / "vllm-patch.toml"
    KINDS[kind](path)
    ran = here.run("verify", "--json")
    (error,) = ran.json["errors"]
    assert (ran.code, error["code"]) == (3, "invalid-config")
    assert error["what"] == f"{path} is no file that can be read"
    assert "--no-config" in error["hint"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_that_cant_be_read_may_be_about_other_things(here: Scene, kind: str) -> None:
    KINDS[kind](here.root / "pyproject.toml")
    assert here.run("verify", "--no-builtin").code == 0


def test_the_file_is_the_one_that_the_system_finds(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.root / "far" / "inner").mkdir(parents=True)
    (here.root / "link").symlink_to("far/inner")
    (here.root / "far" / "x.toml").write_text(f'{OWN}patches = ["one"]\n'.replace("own", "../own"))
    (here.root / "x.toml").write_text("strikt = true\n")
    monkeypatch.setenv("VLLM_PATCH_CONFIG", "link/../x.toml")
    assert ids(here.run("verify", "--json")) == {"one": "not-applied"}


def test_a_key_that_may_be_meant(here: Scene) -> None:
    say(here, "strikt = true\nwhere = 1\nzzz = 1\n")
    ran = here.run("verify")
    assert "unknown key strikt, where, zzz" in ran.err
    assert "strikt, did you mean strict?" in ran.err
    assert ran.err.count("did you mean") == 1


@pytest.mark.parametrize("name", ["vllm-patcher", "vllm_patch"])
def test_a_table_that_is_called_nearly_so(here: Scene, name: str) -> None:
    (here.root / "pyproject.toml").write_text(f"[tool.{name}]\nstrict = true\n")
    ran = here.run("verify")
    assert ran.code == 3
    assert f"pyproject.toml: [tool.{name}] must be called [tool.vllm-patch]" in ran.err


@pytest.mark.parametrize("text", [b"this is no toml", b"\xff"])
def test_what_is_no_toml_is_a_wrong_configuration(here: Scene, text: bytes) -> None:
    (here.root / config.FILE).write_bytes(text)
    ran = here.run("verify", "--json")
    assert (ran.code, ran.json["errors"][0]["code"]) == (3, "invalid-config")


def test_a_diff_is_found_beside_the_file(here: Scene) -> None:
    (here.root / "fixes").mkdir()
    here.diff_file("fixes/mine.patch", ONE)
    say(here, 'builtin = false\npatches = ["fixes/mine.patch"]\n')
    assert here.run("apply").code == 0
    assert (here.package / "a.py").read_bytes() == changed(FILES["a.py"], a05="50")
    assert ids(here.run("verify", "--json")) == {"mine": "applied"}


def test_a_wanted_patch_that_cant_be_had_fails(here: Scene) -> None:
    path = say(here, f'{OWN}patches = ["one", "three"]\n')
    ran = here.run("apply")
    assert (ran.code, "no patch 'three'" in ran.err) == (2, True)
    assert f"  as {path} says\n" in ran.err
    say(here, f'{OWN}patches = ["gone.patch"]\n')
    ran = here.run("apply")
    assert (ran.code, "gone.patch" in ran.err) == (2, True)


def test_a_pin_keeps_a_patch_from_changing_by_itself(here: Scene) -> None:
    path = say(here, f'{OWN}patches = ["one"]\n[revisions]\none = "{PIN}"\n')
    assert here.run("apply").code == 0
    here.catalog(entry("one", patch(a05="51")), entry("two", TWO), name="own")
    ran = here.run("verify")
    assert ran.code == 3
    assert ran.err.splitlines()[0] == "error: a pinned patch is another one"
    assert f"{path}: one: sha256" in ran.err
    say(here, f'{OWN}[revisions]\nthree = "{PIN}"\n')
    assert "three: in no catalog" in here.run("verify").err


def test_strict_and_exact(here: Scene) -> None:
    say(here, f"{OWN}strict = true\nexact = true\n")
    source = here.package / "a.py"
    source.write_bytes(b"new = 0\n" + source.read_bytes())
    ran = here.run("apply")
    assert (ran.code, "--exact" in ran.err) == (3, True)
    assert here.run("apply", "--no-config", "--no-builtin", "--catalog", "own").code == 0
    ran = here.run("verify")
    assert (ran.code, "a file is not what was released" in ran.err) == (1, True)


def test_no_folder_above_is_looked_into(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    say(here, "this is no toml")
    (here.root / "below").mkdir()
    monkeypatch.chdir(here.root / "below")
    assert here.run("verify", "--no-builtin").code == 0
    monkeypatch.chdir(here.root)
    assert here.run("verify", "--no-builtin").code == 3
    assert here.run("verify", "--no-builtin", "--no-config").code == 0
    assert here.run("status", "--no-builtin").code == 0


def test_without_the_file_the_environment_still_says_how_strict(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(here, f"{OWN}strict = true\n")
    source = here.package / "a.py"
    source.write_bytes(b"new = 0\n" + source.read_bytes())
    options = ("--no-builtin", "--catalog", "own")
    assert here.run("apply", *options).code == 0
    assert here.run("verify", "one", *options).code == 0
    assert here.run("verify", "--no-config", *options).code == 0
    monkeypatch.setenv("VLLM_PATCH_STRICT", "1")
    assert here.run("verify", "one", *options).code == 1
    assert here.run("verify", "--no-config", *options).code == 1


def test_hints_name_the_catalogs_of_the_file(here: Scene) -> None:
    """Other verbs don't read it, so what is pasted has to say what it says."""
    say(here, f'{OWN}patches = ["one"]\n')
    source = here.package / "a.py"
    before = source.read_bytes()
    source.write_bytes(before.replace(b"a04", b"a44").replace(b"a06", b"a66"))
    here.info.joinpath("RECORD").unlink()
    hint = here.run("verify").err.splitlines()[-1].removeprefix("hint: vllm-patch ")
    assert hint == f"show one --catalog {here.root / 'own'} --no-builtin"
    assert run(*hint.split()).code == 0
    # `apply` reads it itself.
    source.write_bytes(before)
    assert here.run("verify").err.splitlines()[-1].startswith("hint: vllm-patch apply --site")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_obeyed(here: Scene) -> None:
    path = say(here, OWN)
    os.chown(path, 1234, 1234)
    ran = here.run("apply")
    assert ran.code == 3
    assert f"{path} belongs to uid 1234" in ran.err
    assert "--no-config" in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("patch = []", "unknown key patch"),
        ("where = 'x'", "unknown key where"),
        ("patches = 'one'", "patches must be a list of texts"),
        ("patches = [1]", "patches must be a list of texts"),
        ("catalogs = ['']", "catalogs must be a list of texts"),
        ("strict = 1", "strict must be true or false"),
        ("revisions = 'x'", "revisions must be a table"),
        ("revisions = {one = 'x'}", "revisions.one must be the sha256 of a diff"),
        (f"revisions = {{one = '{'G' * 64}'}}", "64 hex digits in lower case"),
        ("=", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said(here: Scene, text: str, says: str) -> None:
    path = say(here, text)
    ran = here.run("verify", "--no-builtin")
    assert ran.code == 3
    assert says in ran.err
    assert path in ran.err


def test_the_environment_is_the_stronger(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('patches = ["one"]\nstrict = true\n')
    found = config.read("", {"VLLM_PATCH_CONFIG": str(path)})
    assert found == Config(where=str(path), patches=("one",), strict=True)
    more = {"VLLM_PATCH_PATCHES": "two three", "VLLM_PATCH_STRICT": "0", "VLLM_PATCH_EXACT": "1"}
    found = config.read("", {"VLLM_PATCH_CONFIG": str(path), **more})
    assert (found.patches, found.strict, found.exact) == (("two", "three"), False, True)
    assert config.read("", more).where == "VLLM_PATCH_PATCHES"
    with pytest.raises(InvalidConfig, match="there is no such file"):
        config.read("", {"VLLM_PATCH_CONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize("key", ["strict", "exact"])
def test_the_words_of_a_variable(tmp_path: Path, key: str) -> None:
    (tmp_path / config.FILE).write_text(f"{key} = true\n")
    variable = f"VLLM_PATCH_{key.upper()}"

    def said(word: str, folder: str = "") -> bool:
        answer = getattr(config.read(folder, {variable: word}), key)
        assert isinstance(answer, bool)
        return answer

    for yes in config.YES:
        assert said(yes), yes
        assert said(f" {yes.upper()}\t"), yes
    for no in config.NO:
        assert not said(no, str(tmp_path)), no
        assert not said(f" {no.upper()}\t", str(tmp_path)), no
    # Without a word the file counts.
    for blank in ("", "  "):
        assert said(blank, str(tmp_path))
        assert not said(blank)
    for other in ("maybe", "2", "true true", "tru"):
        with pytest.raises(InvalidConfig, match=f"{variable} is '{other}', which is none of 1, "):
            said(other)


def test_a_word_that_is_neither_yes_nor_no_is_refused(
    here: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PATCH_STRICT", "ture")
    words = "1, true, yes, on, 0, false, no, off"
    for options in ((), ("--no-config",), ("--kind", "crash")):
        ran = here.run("verify", "--no-builtin", *options)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == f"error: VLLM_PATCH_STRICT is 'ture', which is none of {words}\n"
    assert here.run("status", "--no-builtin").code == 0


def test_a_project_without_the_table_says_nothing(tmp_path: Path) -> None:
    (tmp_path / config.PROJECT).write_text("[project.scripts]\nvllm-patch = 'x:y'\n")
    assert config.read(str(tmp_path), {}) == Config()
