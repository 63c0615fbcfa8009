# SPDX-License-Identifier: Apache-2.0
"""Commands whose help shows no type beside a flag, which takes no value, nor beside an argument, whose help says it."""

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


def _no_type(**_context: Any) -> None:  # noqa: ANN401 (types that typer keeps to itself)
    return None


def _with_few_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.param_type_name == "argument" or parameter.is_flag:
            parameter.display_type_rich = _no_type
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 (a type that typer keeps to itself)
        return _with_few_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 (a type that typer keeps to itself)
        return _with_few_types(super().get_params(ctx))


class Application(typer.Typer):
    """A group of commands."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (those of typer)
        super().__init__(cls=_Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:  # noqa: ANN401 (those of typer)
        """Registers a function as a command of this group."""
        return super().command(name, cls=_Command, **options)
