"""What can't be meant is refused when a request is made, before anything is looked at."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scenes import entry, make_scene, patch, write_catalog
from vllm_patcher import operations
from vllm_patcher.request import KINDS, AdHoc, Request

if TYPE_CHECKING:
    from vllm_patcher.values import Value


@pytest.mark.parametrize("field", ["patches", "catalogs", "kinds", "cves"])
@pytest.mark.parametrize("one", ["security", b"x", Path("x"), AdHoc("x", b""), None, 7], ids=repr)
def test_one_value_is_not_taken_for_several(field: str, one: Any) -> None:
    """A text would be taken for its letters."""
    with pytest.raises(TypeError, match=f"^{field} are several: give a tuple of them, not one "):
        Request(**{field: one})


@pytest.mark.parametrize("field", ["patches", "catalogs", "kinds", "cves"])
@pytest.mark.parametrize("item", [b"x", 7, None], ids=repr)
def test_each_of_several_is_a_text(field: str, item: Any) -> None:
    fields: dict[str, Any] = {field: (item,)}
    with pytest.raises(TypeError, match=f"^{field}: give a text, not "):
        Request(**fields)


@pytest.mark.parametrize("field", ["python", "site_packages"])
def test_an_install_is_named_by_a_text(field: str) -> None:
    wrong: Any = 7
    with pytest.raises(TypeError, match=f"^{field}: give a text, not int$"):
        Request(**{field: wrong})


def test_a_diff_is_a_patch_and_nothing_else() -> None:
    fix = AdHoc("x", b"")
    assert Request(patches=(fix,)).patches == (fix,)
    with pytest.raises(TypeError, match=r"^catalogs: give a text, not AdHoc$"):
        Request(catalogs=(fix,))  # type: ignore[arg-type]


def test_what_names_several_may_be_any_of_them() -> None:
    assert Request(patches=["a", "b"]).patches == ("a", "b")  # type: ignore[arg-type]


def test_a_kind_is_one_that_there_is() -> None:
    assert Request(kinds=KINDS).kinds == KINDS
    with pytest.raises(ValueError, match="there is no kind 'securty', but crash, leak, security,"):
        Request(kinds=("crash", "securty"))


@pytest.mark.parametrize("chosen", [{"kinds": ("leak",)}, {"cves": ("CVE-2026-34756",)}], ids=repr)
def test_patches_are_named_or_chosen(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="kinds and cves choose patches: give no patches besides"):
        Request(patches=("one",), **chosen)
    with pytest.raises(ValueError, match="kinds and cves"):
        Request(**chosen).replaced(patches=("one",))


def test_a_diff_is_bytes() -> None:
    with pytest.raises(TypeError, match=r"^text: give bytes, .* not str$"):
        AdHoc("x", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^id: give a text, not int$"):
        AdHoc(7, b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [Request(), AdHoc("x", b"")], ids=repr)
def test_what_is_left_out_is_what_the_fields_say(value: Value) -> None:
    for name, parameter in inspect.signature(type(value)).parameters.items():
        assert name in value._fields
        if parameter.default is not inspect.Parameter.empty and name != "revisions":
            assert parameter.default == getattr(type(value), name)
    assert [*inspect.signature(type(value)).parameters] == [*value._fields]


def test_paths_of_every_kind(tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path / "catalog", entry("one", patch(a05="50")))
    scene = make_scene(tmp_path)
    fix = scene.diff_file("fix.patch", patch(a15="7"))
    asked = Request(
        patches=("one", fix), catalogs=(catalog,), builtin=False, site_packages=scene.site
    )
    assert [outcome.state for outcome in operations.apply(asked).patches] == ["applied"] * 2
    assert asked.replaced(python=Path("x")).python == "x"
