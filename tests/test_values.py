"""Values: what dataclasses would give, without their price."""

from __future__ import annotations

import pytest

from vllm_patcher.values import Value


class Point(Value):
    x: int
    y: int = 0


class Other(Value):
    x: int
    y: int = 0


def test_fields_are_given_in_order_or_by_name_or_by_default() -> None:
    assert (Point(1).x, Point(1).y) == (1, 0)
    assert Point(1, 2) == Point(x=1, y=2) == Point(1, y=2)
    assert Point(1) == Point(1, 0)


def test_equal_values_of_one_class_are_equal_and_hash_alike() -> None:
    assert Point(1, 2) != Point(2, 1)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert len({Point(1, 2), Point(1, 2), Other(1, 2)}) == 2


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [((), {}, "x"), ((1,), {"z": 3}, "z"), ((1, 2, 3), {}, "Point"), ((1,), {"x": 2}, "too many")],
)
def test_too_few_and_too_many_fields(
    given: tuple[int, ...], named: dict[str, int], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        Point(*given, **named)


def test_nothing_can_be_set_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="can't be changed"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="can't be changed"):
        del point.x
    assert point == Point(1)


def test_replaced_makes_another_value() -> None:
    point = Point(1, 2)
    assert point.replaced(y=3) == Point(1, 3)
    assert point == Point(1, 2)
    with pytest.raises(TypeError, match="z"):
        point.replaced(z=1)


def test_it_says_what_it_is() -> None:
    assert repr(Point(1)) == "Point(x=1, y=0)"
