# SPDX-License-Identifier: Apache-2.0
"""The two ways in which Forebay fails: before anything started, and after."""

_SHOWN_MAX = 200  # characters of a value in a message


class RefusedInput(ValueError):  # noqa: N818 (the name is the API's)
    """Input that is refused before anything starts; one line that names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.value = str(value)
        shown = self.value if len(self.value) <= _SHOWN_MAX else f"{self.value[:_SHOWN_MAX]}..."
        super().__init__(f"{field}: '{shown}': {remedy}")
        self.field = field
        self.remedy = remedy


class OperationFailed(RuntimeError):  # noqa: N818 (the name is the API's)
    """Something that was started and failed: a controller, the operating system, a GPU."""
