"""Immutable values with named fields.

Always true here: a value has exactly the fields its class annotates, each given or its
class's default, and none can be set again. Dataclasses and named tuples say the same, but
compile code for every class when a module is imported: for the classes of this package that took
a fifth of the time that `vllm-patch verify` may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_settings: object) -> Callable[[type], type]:
        """Tell type checkers what they would otherwise take from a dataclass."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Value:
    """The base of all values: a subclass annotates its fields, with or without a default."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _known: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        """Take the fields from the annotations."""
        cls._fields = tuple(cls.__annotations__)
        cls._known = frozenset(cls._fields)
        cls._required = frozenset(name for name in cls._fields if name not in cls.__dict__)

    def __init__(self, *first: Any, **fields: Any) -> None:
        """Take the fields, in order or by name. Raises TypeError for too many or too few."""
        given = len(first) + len(fields)
        fields.update(zip(self._fields, first, strict=False))
        keys = fields.keys()
        if not self._required <= keys <= self._known or len(fields) < given:
            wrong = (self._required - keys) | (keys - self._known)
            what = ", ".join(sorted(wrong)) or "too many values"
            raise TypeError(f"{type(self).__name__}: {what}")
        self.__dict__.update(fields)

    def replaced(self, **fields: Any) -> Self:
        """Return the same value with other fields."""
        own = {name: value for name, value in vars(self).items() if name in self._fields}
        return type(self)(**{**own, **fields})

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and (
            type(self) is type(other) and self._values() == other._values()
        )

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = zip(self._fields, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} can't be changed; {name} was to be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} can't be changed; {name} was to go")
